"""Conditions that no torch version has a say in: most of them, and telling so takes less than evaluating them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.facts.version_calls import BUILTINS
from fsdp_migrate.facts.version_expressions import VALUES

Bindings = Callable[[ast.Name], Sequence[Binding]]
# Builtins that nobody can evaluate, whatever they are given.
_OPAQUE_BUILTINS = frozenset({"isinstance", "issubclass", "type", "id", "repr", "next", "iter", "vars", "dir"})


def is_opaque(node: ast.expr, bindings: Bindings) -> bool:
    """Whether the value of `node` is certainly unknown on every release: it comes down to what a function is given."""
    kind = type(node)
    if kind is ast.Name:
        found = bindings(node)  # type: ignore[arg-type]
        return bool(found) and all(binding.kind is Kind.PARAMETER for binding in found)
    if kind is ast.Call:
        return _is_opaque_call(node, bindings)  # type: ignore[arg-type]
    if kind is ast.BoolOp:
        return all(is_opaque(value, bindings) for value in node.values)  # type: ignore[attr-defined]
    if kind is ast.Compare:
        # Of a chain the first comparison may settle it.
        operands = (node.left, *node.comparators)  # type: ignore[attr-defined]
        return len(operands) == 2 and any(is_opaque(operand, bindings) for operand in operands)
    parts = _PARTS.get(kind)
    if parts is None:
        return kind not in VALUES
    return any(is_opaque(getattr(node, name), bindings) for name in parts)


# Of these, one part that is unknown makes the whole unknown.
_PARTS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Attribute: ("value",),
    ast.Subscript: ("value",),
    ast.UnaryOp: ("operand",),
    ast.BinOp: ("left", "right"),
    **dict.fromkeys(VALUES.keys() - {ast.Attribute, ast.Subscript, ast.UnaryOp, ast.BinOp}, ()),
}


def _is_opaque_call(call: ast.Call, bindings: Bindings) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        return is_opaque(function, bindings)
    if not isinstance(function, ast.Name) or bindings(function):
        return False
    if function.id in _OPAQUE_BUILTINS:
        return True
    plain = function.id in BUILTINS and not call.keywords
    return plain and any(is_opaque(argument, bindings) for argument in call.args)
