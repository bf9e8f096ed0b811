"""Dotted names in source."""

from __future__ import annotations

import ast


def dotted(node: ast.expr | None) -> str | None:
    """`a.b.c` for a chain of attributes on a name, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return owner and f"{owner}.{node.attr}"
    return None


def text_of(node: ast.expr | None, values: dict[str, str] | None = None) -> str | None:
    """The string that a literal, a sum of literals or an f-string stands for.

    `values` are what names stand for; any other expression of an f-string is written as `{expression}`.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return (values or {}).get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left, values), text_of(node.right, values)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(piece, values) for piece in node.values)
    return None


def _piece(piece: ast.expr, values: dict[str, str] | None) -> str:
    if isinstance(piece, ast.FormattedValue):
        known = text_of(piece.value, values)
        return f"{{{ast.unparse(piece.value)}}}" if known is None else known
    return text_of(piece, values) or ""
