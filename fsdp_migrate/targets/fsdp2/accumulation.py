"""`model.no_sync()`: gradients that stay on each rank, by a small function around `set_requires_gradient_sync`.

It adds up the same numbers where gradients are reduced in the dtype in which they are computed; else FSDP1 adds them up
in `param_dtype` and FSDP2 in `reduce_dtype` (measured on two ranks: bfloat16 and float32 differ by 3e-3).
"""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal, is_written_out
from fsdp_migrate.targets.fsdp2.conversion import Construction
from fsdp_migrate.targets.fsdp2.file_helpers import helper
from fsdp_migrate.targets.fsdp2.guards import also_ddp
from fsdp_migrate.targets.fsdp2.use import PACKAGE, Member, Use, as_argument

_DTYPES = (
    "`no_sync` adds gradients up in `reduce_dtype` instead of `param_dtype`: sums differ where the two are not the same"
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
    start, end, model = source.span(call).start, source.span(call).end, source.segment(use.node)
    if source.has_comment(source.span(call)):
        use.wall("a comment stands inside `getattr`", "take it away")
    elif isinstance(outer, ast.Call) and outer.func is call and not outer.args and not outer.keywords:
        use.replace(start, source.span(outer).end, f"{function}({model})")
    else:
        partial = use.spelled("functools.partial")
        if partial is not None:
            use.replace(start, end, f"{partial}({function}, {model})")


def _bind(use: Use, function: str, start: int, end: int, last: int) -> None:
    partial = use.spelled("functools.partial")
    if partial is not None:
        use.replace(start, start, f"{partial}({function}, ")
        use.replace(end, last, ")")


def _function(use: Use) -> str | None:
    if also_ddp(use, "no_sync"):
        return None
    if not all(accumulates_alike(one) for one in use.closure.constructions):
        use.differs(_DTYPES)
    return helper(use, "no_sync")


def accumulates_alike(construction: Construction) -> bool:
    """Whether gradients of a model are visibly reduced in the dtype in which they are computed."""
    facts, call = construction.facts, construction.call
    if not is_written_out(call):
        return False
    given = next((one.value for one in call.keywords if one.arg == "mixed_precision"), None)
    if len(call.args) > _BEFORE_PRECISION:
        given = call.args[_BEFORE_PRECISION]
    if given is None or is_literal(given, None):
        return True
    policy = facts.names.value(given) if isinstance(given, ast.Name) else given
    return isinstance(policy, ast.Call) and _is_even(facts, policy)


# FSDP(module, process_group, sharding_strategy, cpu_offload, auto_wrap_policy, backward_prefetch, mixed_precision, ...)
_BEFORE_PRECISION = 6


def _is_even(facts: ModuleFacts, policy: ast.Call) -> bool:
    named = isinstance(policy.func, (ast.Name, ast.Attribute)) and facts.names.qualified(policy.func)
    if named != f"{PACKAGE}.MixedPrecision" or not is_written_out(policy):
        return False
    fields = dict(zip(("param_dtype", "reduce_dtype"), policy.args))
    fields.update((one.arg, one.value) for one in policy.keywords if one.arg is not None)
    reduced, computed = fields.get("reduce_dtype"), fields.get("param_dtype")
    if reduced is None or is_literal(reduced, None):
        return True
    return computed is not None and ast.unparse(computed) == ast.unparse(reduced)
