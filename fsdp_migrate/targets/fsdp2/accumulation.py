"""`model.no_sync()`: gradients that stay on each rank, by a small function around `set_requires_gradient_sync`.

It adds up the same numbers where gradients are reduced in the dtype in which they are computed; else FSDP1 adds them up
in `param_dtype` and FSDP2 in `reduce_dtype` (measured on two ranks: bfloat16 and float32 differ by 3e-3).
"""

from __future__ import annotations

import ast

from fsdp_migrate.targets.fsdp2.file_helpers import helper
from fsdp_migrate.targets.fsdp2.guards import also_ddp
from fsdp_migrate.targets.fsdp2.said import accumulates_alike
from fsdp_migrate.targets.fsdp2.use import Member, Use, as_argument

_DTYPES = (
    "under `no_sync` gradients are accumulated in `reduce_dtype` instead of `param_dtype`: sums differ if the two "
    "differ"
)


def convert_no_sync(use: Use, member: Member) -> None:
    """Skip the reduction by a function, which is also what a bound method that is passed on becomes."""
    function = _function(use)
    if function is None:
        return
    if member.call is not None:
        as_argument(use, member, function)
    else:
        _bind(use, function, member.start, member.end, use.facts.source.span(member.node).end)


def convert_looked_up(use: Use, call: ast.Call) -> None:
    """`getattr(model, "no_sync", nullcontext)`, called at once or kept."""
    function = _function(use)
    if function is None:
        return
    source, outer = use.facts.source, use.facts.structure.parents[call]
    (start, end), model = source.span(call), use.written
    if source.has_comment(source.span(call)):
        use.wall("a comment is inside `getattr`", "move the comment")
    elif isinstance(outer, ast.Call) and outer.func is call and not outer.args and not outer.keywords:
        use.put(start, source.span(outer).end, f"{function}({model})")
    else:
        partial = use.spelled("functools.partial")
        if partial is not None:
            use.put(start, end, f"{partial}({function}, {model})")


def _bind(use: Use, function: str, start: int, end: int, last: int) -> None:
    partial = use.spelled("functools.partial")
    if partial is not None:
        use.put(start, start, f"{partial}({function}, ")
        use.put(end, last, ")")


def _function(use: Use) -> str | None:
    if also_ddp(use, "no_sync"):
        return None
    if not accumulates_alike(use.closure):
        use.differs(_DTYPES)
    return helper(use, "no_sync")
