"""Blocks that control never gets to the end of."""

from __future__ import annotations

import ast
from collections.abc import Sequence

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def leaves(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing behind a block in the same function or turn of a loop runs after it.

    A `with` that may swallow an error may go on behind it.
    """
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return leaves(last.body) and not any("suppress" in ast.unparse(one.context_expr) for one in last.items)
    return isinstance(last, _LEAVING)
