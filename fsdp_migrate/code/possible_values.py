"""The values that an expression may have, if the file writes all of them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from fsdp_migrate.facts import ModuleFacts


def choice(facts: ModuleFacts, node: ast.expr, names: Container[str | None]) -> ast.expr | None:
    """The place where `node` is, or may be, one of some full names; None if it is not visible."""
    waiting, seen = [node], {node}
    while waiting:
        value = waiting.pop(0)
        if facts.names.qualified(value) in names:
            return value
        more = [one for one in _choices(facts, value) if one not in seen]
        waiting += more
        seen.update(more)
    return None


def _choices(facts: ModuleFacts, node: ast.expr) -> list[ast.expr]:
    """The expressions that `node` may evaluate to: both of a conditional, all of a collection or function."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.NamedExpr):
        return [node.value]
    if isinstance(node, ast.Subscript):
        return _items(facts, node.value, node.slice)
    asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop")
    if asks and node.args:  # type: ignore[attr-defined]
        return [*_items(facts, node.func.value, node.args[0]), *node.args[1:]]  # type: ignore[attr-defined]
    if isinstance(node, ast.Call):
        return [value for function in _called(facts, node.func) for value in _returned(facts, function)]
    return _values(facts, node)


def _items(facts: ModuleFacts, node: ast.expr, key: ast.expr) -> list[ast.expr]:
    """The values under a key of a dict, list or tuple, written here or assigned to a name."""
    found: list[tuple[object, ast.expr]] = []
    for one in [node, *_values(facts, node)]:
        if isinstance(one, ast.Dict):
            found += [(getattr(at, "value", None), value) for at, value in zip(one.keys, one.values)]
        elif isinstance(one, (ast.List, ast.Tuple)):
            found += enumerate(one.elts)
        elif isinstance(one, ast.Call) and facts.names.qualified(one.func) == "builtins.dict":
            found += [(keyword.arg, keyword.value) for keyword in one.keywords]
    wanted = getattr(key, "value", None) if isinstance(key, ast.Constant) else None
    return [value for at, value in found if wanted is None or wanted == at or not isinstance(at, (str, int))]


def _values(facts: ModuleFacts, node: ast.expr) -> list[ast.expr]:
    """The values that are assigned to a name, or to an attribute of `self`."""
    if isinstance(node, ast.Attribute):
        return _kept(facts, node) if _is_self(node.value) else []
    bindings = facts.names.bindings(node) if isinstance(node, ast.Name) else []
    return [binding.value for binding in bindings if binding.value is not None]


def _kept(facts: ModuleFacts, attribute: ast.Attribute) -> list[ast.expr]:
    """The values that the methods of the class assign to an attribute of `self`."""
    cls, found = facts.class_around(attribute), []
    for store in facts.structure.stores:
        if store.attr == attribute.attr and _is_self(store.value) and facts.class_around(store) is cls:
            parent = facts.structure.parents[store]
            found.append(parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign)) else None)
    return [value for value in found if value is not None]


def _called(facts: ModuleFacts, func: ast.expr) -> Iterator[ast.FunctionDef]:
    """The functions of this file that a call may run: by name, or methods of `self`."""
    nodes: list[ast.AST] = []
    if isinstance(func, ast.Name):
        nodes = [binding.node for binding in facts.names.bindings(func)]
    elif isinstance(func, ast.Attribute) and _is_self(func.value) and (cls := facts.class_around(func)) is not None:
        nodes = [one for one in cls.body if getattr(one, "name", None) == func.attr]
    yield from (node for node in nodes if isinstance(node, ast.FunctionDef))


def _returned(facts: ModuleFacts, function: ast.FunctionDef) -> list[ast.expr]:
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    return [one.value for one in returns if one.value is not None and facts.function(one) is function]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
