"""What a value may turn out to be, where a file writes all that it chooses from."""

from __future__ import annotations

import ast
from collections.abc import Container

from fsdp_migrate.facts import ModuleFacts


def choice(facts: ModuleFacts, node: ast.expr, names: Container[str | None]) -> ast.expr | None:
    """Where `node` is, or may be, one of some full names; None where nothing says so."""
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
    """The expressions that `node` takes its value from: both of a conditional one, all of a collection."""
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
    return _values(facts, node)


def _items(facts: ModuleFacts, node: ast.expr, key: ast.expr) -> list[ast.expr]:
    """What may be found under a key in a dict, list or tuple, written here or assigned to a name."""
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
    """What a name is assigned, beside what it gets from elsewhere."""
    bindings = facts.names.bindings(node) if isinstance(node, ast.Name) else []
    return [binding.value for binding in bindings if binding.value is not None]
