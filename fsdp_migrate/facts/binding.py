"""Whether a name is always bound at a place, and whether a loop carries a binding back to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from fsdp_migrate.facts.scopes import TRIES, FunctionNode

Loop = ast.For | ast.AsyncFor | ast.While
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def surely_bound(name: str, node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether every path to `node` in its function (or module) binds `name` first.

    Parameters count as bound, and so do targets of loops and `with` blocks around `node`.
    """
    child = node
    while child in parents:
        parent = parents[child]
        for block in _blocks(parent):
            if child in block and any(binds(statement, name) for statement in block[: block.index(child)]):
                return True
        if binds_inside(parent, child, name):
            return True
        if isinstance(parent, FunctionNode):
            return name in _parameters(parent)
        child = parent
    return False


def loops_to(name: str, node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> list[Loop]:
    """The loops around `node` in which it may see a binding of `name` from the iteration before."""
    found: list[Loop] = []
    if not any(isinstance(parent, Loop) for parent in _around(node, parents)):
        return found
    child = node
    for parent in _around(node, parents):
        for block in _blocks(parent):
            if child in block and any(binds(statement, name) for statement in block[: block.index(child)]):
                return found
        if binds_inside(parent, child, name):
            return found
        if isinstance(parent, Loop) and child not in parent.orelse and child is not getattr(parent, "iter", None):
            found.append(parent)
        child = parent
    return found


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """The blocks around `node` in its function, class or module, from the inside out."""
    while (parent := parents.get(node)) is not None and not isinstance(parent, (*FunctionNode, ast.ClassDef)):
        yield parent
        node = parent


def _blocks(node: ast.AST) -> Sequence[Sequence[ast.stmt]]:
    blocks = [getattr(node, field, None) for field in ("body", "orelse", "finalbody")]
    return [block for block in blocks if isinstance(block, list)]


def binds(statement: ast.stmt, name: str) -> bool:
    """Whether `name` is bound whenever control reaches the end of `statement`."""
    if isinstance(statement, ast.If):
        return _names(statement.test, name) or (
            _block_binds(statement.body, name) and _block_binds(statement.orelse, name)
        )
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return any(_is_target(item.optional_vars, name) for item in statement.items) or _block_binds(
            statement.body, name
        )
    if isinstance(statement, TRIES):
        arms = [[*statement.body, *statement.orelse], *(handler.body for handler in statement.handlers)]
        return _block_binds(statement.finalbody, name) or all(_block_binds(arm, name) for arm in arms)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return any((alias.asname or alias.name.split(".")[0]) == name for alias in statement.names)
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return statement.name == name
    if isinstance(statement, ast.Assign):
        return any(_is_target(target, name) for target in statement.targets)
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        return statement.value is not None and _is_target(statement.target, name)
    return False


def _block_binds(block: Sequence[ast.stmt], name: str) -> bool:
    """Whether a block binds `name`, or is left before its end."""
    return any(binds(statement, name) or isinstance(statement, _LEAVES) for statement in block)


def binds_inside(parent: ast.AST, child: ast.AST, name: str) -> bool:
    """Whether a compound statement has bound `name` before its body runs."""
    if isinstance(parent, (ast.If, ast.While)):
        return child is not parent.test and _names(parent.test, name)
    if isinstance(parent, (ast.For, ast.AsyncFor)):
        return child in parent.body and _is_target(parent.target, name)
    if isinstance(parent, (ast.With, ast.AsyncWith)):
        return child in parent.body and any(_is_target(item.optional_vars, name) for item in parent.items)
    return False


def _names(test: ast.expr, name: str) -> bool:
    """Whether evaluating a condition binds `name` in any case: `(x := f()) is None and ...`."""
    while not isinstance(test, ast.NamedExpr):
        if isinstance(test, ast.BoolOp):
            test = test.values[0]
        elif isinstance(test, ast.Compare):
            test = test.left
        elif isinstance(test, ast.UnaryOp):
            test = test.operand
        else:
            return False
    return test.target.id == name


def _is_target(target: ast.expr | None, name: str) -> bool:
    """Whether a name or dotted attribute is one of the targets."""
    kind = ast.Attribute if "." in name else ast.Name
    parts = () if target is None else (part for part in ast.walk(target) if isinstance(part, kind))
    return any(isinstance(part.ctx, ast.Store) and ast.unparse(part) == name for part in parts)


def _parameters(function: ast.AST) -> set[str]:
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in everyone if argument is not None}
