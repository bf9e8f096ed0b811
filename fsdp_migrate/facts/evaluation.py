"""The order in which a statement evaluates its parts, and their effects.

A call can move out of a statement only if nothing that ran before it has an effect on it, and if it runs exactly once.
Both follow from the syntax tree by the evaluation order of the language reference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from fsdp_migrate.facts.names import Names

# Calls without an effect that saving or loading state could see, and whose result does not depend on when they run.
_READING_FUNCTIONS = frozenset(
    """
    builtins.dict builtins.list builtins.tuple builtins.set builtins.frozenset builtins.len builtins.str builtins.int
    builtins.float builtins.bool builtins.repr builtins.sorted builtins.isinstance builtins.issubclass builtins.type
    builtins.id builtins.zip builtins.enumerate builtins.range builtins.min builtins.max builtins.sum builtins.any
    builtins.all builtins.getattr builtins.hasattr builtins.format builtins.vars builtins.callable builtins.super
    torch.load torch.device torch.tensor torch.cuda.current_device
    torch.distributed.get_rank torch.distributed.get_world_size torch.distributed.is_initialized
    torch.distributed.is_available copy.copy copy.deepcopy pickle.dumps
    os.path.join os.path.exists os.path.isfile os.path.basename os.path.dirname os.path.abspath os.fspath
    os.environ.get os.getenv pathlib.Path io.BytesIO time.time
    """.split()
)
# The same for methods, whose names say that they only work on plain containers, strings, tensors and modules.
_READING_METHODS = frozenset(
    """
    get items keys values copy format join split strip rstrip lstrip replace startswith endswith lower upper
    joinpath with_suffix with_name exists is_file getvalue item tolist detach clone size dim numel encode decode
    parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict
    """.split()
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPREHENDED = "inside a comprehension: write a loop instead"
_DEFERRED = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def pure(node: ast.AST) -> bool:
    """Whether `node` is a name, attribute or item chain that may be written out twice."""
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.Attribute):
        return pure(node.value)
    if isinstance(node, ast.Subscript):
        return pure(node.value) and _is_plain_index(node.slice)
    return False


def _is_plain_index(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple):
        return all(_is_plain_index(element) for element in node.elts)
    return isinstance(node, ast.Constant) or pure(node)


def calls_in(node: ast.AST) -> Iterator[ast.expr]:
    """The calls, awaits and yields that evaluating `node` performs, without those that it only defines."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom)):
            yield current
        if not isinstance(current, _DEFERRED):
            stack.extend(ast.iter_child_nodes(current))


def is_still(node: ast.AST) -> bool:
    """Whether evaluating `node` runs no code: names, attributes, constants, `name["key"]` and combinations of them."""
    return not any(map(_runs, ast.walk(node)))


def _runs(part: ast.AST) -> bool:
    if isinstance(part, ast.Subscript):
        return not isinstance(part.value, (ast.Name, ast.Attribute))
    return isinstance(part, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, *_COMPREHENSIONS))


def is_reading(call: ast.expr, names: Names) -> bool:
    """Whether this call only reads, so that it may change places with a call that reads state."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    qualified = names.qualified(call.func)
    if qualified in _READING_FUNCTIONS:
        return True
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _READING_METHODS
    return is_method and (qualified is None or not qualified.startswith("torch.distributed."))


def evaluated_before(node: ast.expr, statement: ast.stmt, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """The expressions that `statement` has evaluated before `node`, the nearest first."""
    child: ast.AST = node
    while child is not statement:
        parent = parents[child]
        yield from reversed(_earlier_siblings(parent, child))
        child = parent


def evaluated_conditionally(node: ast.expr, statement: ast.stmt, parents: Mapping[ast.AST, ast.AST]) -> str | None:
    """Why `statement` may not evaluate `node` exactly once, with advice; None if it does."""
    child: ast.AST = node
    while child is not statement:
        parent = parents[child]
        reason = _condition(parent, child)
        if reason is not None:
            return reason
        child = parent
    return None


def _condition(parent: ast.AST, child: ast.AST) -> str | None:
    if isinstance(parent, ast.Lambda):
        return "inside a lambda: write a function instead"
    if isinstance(parent, ast.comprehension):
        return None if child is parent.iter else _COMPREHENDED
    if isinstance(parent, _COMPREHENSIONS):
        return None if child is parent.generators[0] else _COMPREHENDED
    if isinstance(parent, ast.IfExp) and child is not parent.test:
        return "inside a conditional expression: write an `if` statement instead"
    if isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
        return "after `and` or `or`, where it may not run: write an `if` statement instead"
    if isinstance(parent, ast.Compare) and child in parent.comparators[1:]:
        return "inside a chained comparison, where it may not run: split the comparison"
    if isinstance(parent, ast.While):
        return "in a `while` condition, which runs in every iteration: use `while True` with a `break` in the body"
    if isinstance(parent, ast.Assert):
        return "in an assertion, which `python -O` removes: assign its result to a variable first"
    if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arguments)):
        return "in a decorator, default or base class: assign its result to a variable before the definition"
    return _position_in_block(parent, child)


def _position_in_block(parent: ast.AST, child: ast.AST) -> str | None:
    """A reason if `node` is in a header part that is evaluated later, or in every iteration."""
    if isinstance(parent, ast.match_case):
        return "in a `case`, which may not be evaluated: write the `match` as `if` statements"
    if isinstance(parent, ast.ExceptHandler):
        return "in an `except` clause, which may not be evaluated: assign its result to a variable before the `try`"
    if isinstance(parent, (ast.For, ast.AsyncFor)) and child is parent.target:
        return "in a loop target, which is evaluated in every iteration: use a plain name, and assign in the body"
    if isinstance(parent, ast.withitem) and child is parent.optional_vars:
        return "in the target of a `with`, which is evaluated after entering: use a plain name, and assign in the body"
    return None


def _earlier_siblings(parent: ast.AST, child: ast.AST) -> list[ast.AST]:
    ordered = _order(parent)
    return ordered[: ordered.index(child)] if child in ordered else []


def _order(node: ast.AST) -> list[ast.AST]:
    """The direct parts of `node` in the order of evaluation."""
    if isinstance(node, ast.Assign):
        return [node.value, *node.targets]
    if isinstance(node, ast.AnnAssign):
        return [*([node.value] if node.value else []), node.target, node.annotation]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Dict):
        return [part for pair in zip(node.keys, node.values) for part in pair if part is not None]
    if isinstance(node, ast.Call):
        # Starred positional arguments run before keywords, even those that stand behind one.
        return [node.func, *node.args, *node.keywords]
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter]
    if isinstance(node, ast.DictComp):
        return [*node.generators, node.key, node.value]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [*node.generators, node.elt]
    if isinstance(node, ast.comprehension):
        return [node.iter, node.target, *node.ifs]
    if isinstance(node, ast.NamedExpr):
        return [node.value]
    return list(ast.iter_child_nodes(node))
