"""`model.clip_grad_norm_(...)`: the function of `torch.nn.utils` does the same for parameters that are DTensors."""

from __future__ import annotations

import ast

from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts.calls import ordered_arguments
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.targets.fsdp2.file_helpers import from_generated, helper
from fsdp_migrate.targets.fsdp2.gathering import release_class
from fsdp_migrate.targets.fsdp2.generated import CLIP
from fsdp_migrate.targets.fsdp2.guards import is_guarded
from fsdp_migrate.targets.fsdp2.running import follows_backward
from fsdp_migrate.targets.fsdp2.said import ignores
from fsdp_migrate.targets.fsdp2.use import Member, Use, as_argument, is_result_used

_CLIP = "torch.nn.utils.clip_grad_norm_"
# Measured on torch 2.13: a rank that holds no row of a parameter raises.
_LARGEST = (
    "the largest gradient (norm type `inf`) cannot be computed where a parameter has fewer rows than there are ranks"
)


def convert_clipping(use: Use, member: Member) -> None:
    """Clip the gradients by `torch.nn.utils`; a norm that somebody looks at is made whole."""
    call = member.call
    if call is None:
        use.wall(f"`{use.text}.clip_grad_norm_` is passed on", "call it where the gradients are clipped")
        return
    if ignores(use.closure):
        _convert_mixed(use, member)
        return
    function = use.spelled(_CLIP)
    if function is None:
        return
    if _may_be_largest(call):
        use.differs(_LARGEST, call)
    source, span, end = use.facts.source, use.facts.source.span(call), ""
    if is_result_used(use, call):
        whole = made_whole(use, call)
        if whole is None:
            return
        function, end = f"{whole.before}{function}", whole.behind
    if source.line_number(span.start) != source.line_number(span.end) and not use.has_others_inside(call):
        model = use.new or source.segment(Span(member.start, member.end))
        kept = (Argument(getattr(old, "arg", None), index) for index, old in enumerate(ordered_arguments(call)))
        first = Argument(None, text=f"{model}.parameters()")
        use.conversion.edit(use.facts, [RewriteCall(span, None, (first, *kept), callee=function)])
    else:
        as_argument(use, member, function, ".parameters()")
    if end:
        use.conversion.edit(use.facts, [Replace(Span(span.end, span.end), end)])


def convert_unbound_clipping(use: Use, call: ast.Call) -> None:
    """`FSDP.clip_grad_norm_(model, ...)`: the same, of the class."""
    is_plain = call.args[:1] == [use.node] and not use.facts.source.has_comment(use.facts.source.span(call))
    if not is_plain or ignores(use.closure):
        use.wall(f"`{ast.unparse(call)}` clips in an unusual way", f"call `{use.text}.clip_grad_norm_`", call)
        return
    function = use.spelled(_CLIP)
    if function is None:
        return
    if _may_be_largest(call, 1):
        use.differs(_LARGEST, call)
    whole = made_whole(use, call) if is_result_used(use, call) else Whole("", "")
    if whole is None:
        return
    span, model = use.facts.source.span(call), use.facts.source.span(use.node)
    use.put(*use.facts.source.span(call.func), f"{whole.before}{function}")
    use.put(model.end, model.end, ".parameters()")
    if whole.behind:
        use.put(span.end, span.end, whole.behind)
    release_class(use, call)


class Whole(NamedTuple):
    """What makes the norm of all ranks of a norm: the texts in front of it and behind it."""

    before: str
    behind: str


def made_whole(use: Use, call: ast.Call) -> Whole | None:
    """The texts around a call that gives a norm, which is no DTensor where no parameter has a gradient.

    None, and a wall, where a function that is needed cannot be had.
    """
    is_guarded_or_alone = not use.reference.others or is_guarded(use)
    if is_guarded_or_alone and follows_backward(use.conversion.code, use.facts, call):
        return Whole("", ".full_tensor()")
    function = helper(use, "whole")
    return None if function is None else Whole(f"{function}(", ")")


def _may_be_largest(call: ast.Call, first: int = 0) -> bool:
    """Whether the norm may be that of the largest element: its type is given, and is no number that one can see.

    `first` is the number of the argument that limits the norm.
    """
    types = [*call.args[first + 1 : first + 2], *(one.value for one in call.keywords if one.arg == "norm_type")]
    return not all(
        isinstance(one, (ast.Constant, ast.Starred)) and getattr(one, "value", None) != "inf" for one in types
    )


def _convert_mixed(use: Use, member: Member) -> None:
    """Some parameters are not sharded, and torch's function does not take both kinds together."""
    if use.options.helper == "never":
        step = "clip the two kinds separately, or allow `--fsdp2-helper auto`"
        use.wall("one call clips gradients of sharded parameters and of others", step, member.node)
        return
    function = from_generated(use, CLIP)
    if function is not None:
        as_argument(use, member, function)
