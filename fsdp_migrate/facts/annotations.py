"""The classes in an annotation: `Optional[A]`, `A | None`, `Union[A, B]`, quoted or not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_UNIONS = ("Optional", "Union")


def options(annotation: ast.expr) -> Iterator[ast.expr]:
    """The expressions of the classes without None; a quoted part stays as it is."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield from options(annotation.left)
        yield from options(annotation.right)
    elif isinstance(annotation, ast.Subscript) and _last(annotation.value) in _UNIONS:
        inner = annotation.slice
        for part in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
            yield from options(part)
    elif not (isinstance(annotation, ast.Constant) and annotation.value is None):
        yield annotation


def texts(quoted: str) -> Iterator[str]:
    """The same for a quoted annotation, as texts; nothing if it is not an expression."""
    try:
        tree = ast.parse(quoted.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from map(ast.unparse, options(tree.body))


def _last(node: ast.expr) -> str | None:
    return getattr(node, "attr", getattr(node, "id", None))
