"""FSDP831-834: activation checkpointing.

Sources: catalogue ckptw-module, ckptw-offload, ckptw-apply, ckpt-use-reentrant (checkpoint_wrapper.py of 1.11 to 2.2;
2.1 to 2.15 torch/utils/checkpoint.py: a warning, and True as the default to this day).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, is_literal, ordered_arguments
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.targets.modernise.moved.planner import check
from fsdp_migrate.targets.modernise.moved.rows import APPLY_CHECKPOINTING, CHECKPOINT_MODULE
from fsdp_migrate.targets.modernise.moved.table import last_parts

_PACKAGE = "torch.distributed.algorithms._checkpoint"
_MODULE = f"{_PACKAGE}.checkpoint_wrapper"
_OLD_MODULE = f"{_PACKAGE}._checkpoint_wrapper"
_WRAPPERS = {f"{_MODULE}.checkpoint_wrapper", f"{_OLD_MODULE}.checkpoint_wrapper"}
_OFFLOAD = "offload_to_cpu"
_OFFLOAD_POSITION = 2
_OFFLOAD_REMOVED = "2.0"
_REENTRANT = "use_reentrant"
_URL = "https://pytorch.org/docs/stable/checkpoint.html"


class _Reentrant(NamedTuple):
    """A function that wants `use_reentrant`: the first releases that warn and that take it, and its position if any."""

    name: str
    warns: str
    takes: str | None = None
    position: int | None = None

    def chooses(self, call: ast.Call) -> bool:
        """Whether a call gives the argument, or may give it."""
        if any(keyword.arg in (None, _REENTRANT) for keyword in call.keywords):
            return True
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        return self.position is not None and (starred or len(call.args) > self.position)


_REENTRANTS = {
    f"torch.utils.checkpoint.{one.name}": one
    for one in (_Reentrant("checkpoint", "2.1"), _Reentrant("checkpoint_sequential", "2.2", takes="2.0", position=3))
}


def check_offload(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the removed parameter, in a call or in a `functools.partial`."""
    for call in facts.structure.calls:
        shift = _wrapper_arguments(facts, call)
        if shift is None or not any(release >= Version(_OFFLOAD_REMOVED) for release in facts.gates.alive(call)):
            continue
        offload = _offload(call, shift)
        if offload is not None:
            message = f"`{_OFFLOAD}` of `checkpoint_wrapper` was removed in torch {_OFFLOAD_REMOVED}"
            place = offload.value
            yield finding(facts, card, place, facts.statement(call), message, _without(facts, call, offload))


def _wrapper_arguments(facts: ModuleFacts, call: ast.Call) -> int | None:
    """How many arguments stand in front of those for the wrapper, None if the call is not about it."""
    if facts.names.qualified(call.func) in _WRAPPERS:
        return 0
    if call.args and facts.names.qualified(call.func) == "functools.partial":
        return 1 if facts.names.qualified(call.args[0]) in _WRAPPERS else None
    return None


def _offload(call: ast.Call, shift: int) -> Bound | None:
    position = 0
    for index, argument in enumerate(ordered_arguments(call)):
        if isinstance(argument, ast.Starred):
            return None
        if isinstance(argument, ast.keyword):
            if argument.arg == _OFFLOAD:
                return Bound(argument.value, index)
            continue
        if position == _OFFLOAD_POSITION + shift and _is_switch(argument):
            return Bound(argument, index)
        position += 1
    return None


def _is_switch(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _without(facts: ModuleFacts, call: ast.Call, offload: Bound) -> Verdict:
    if not is_literal(offload.value, False):
        return manual(
            "write what you want: `offload_wrapper(module)` (its meaning in torch 1.13) or "
            "`offload_wrapper(checkpoint_wrapper(module))` (before 1.13)"
        )
    if any(keyword.arg in ("checkpoint_fn", None) for keyword in call.keywords):
        return manual("it may be meant for `checkpoint_fn`, which gets all other keywords: pass it explicitly")
    return without(facts, call, offload)


def check_reentrant(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find checkpointed calls that do not say which implementation they want."""
    for call in facts.structure.calls:
        one = _REENTRANTS.get(facts.names.qualified(call.func) or "")
        if one is None or not call.args or not facts.reached(call) or one.chooses(call):
            continue
        message = (
            f"`{one.name}` without `{_REENTRANT}` is deprecated since torch {one.warns}: its default, True, is going "
            "to become False"
        )
        of_one = card._replace(floor=one.takes)
        yield finding(facts, of_one, call.func, facts.statement(call), message, _reentrant(facts, call))


def _reentrant(facts: ModuleFacts, call: ast.Call) -> Verdict:
    old = ordered_arguments(call)
    kept = [Argument(a.arg if isinstance(a, ast.keyword) else None, index) for index, a in enumerate(old)]
    arguments = (*kept, Argument(_REENTRANT, text="True"))
    return Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)))


_IMPORT = f"from {_MODULE} import checkpoint_wrapper\n\n"
_PLAIN = (
    "import torch.distributed as dist\nimport torch.utils.checkpoint\nfrom torch.utils.checkpoint import checkpoint\n\n"
)

OFFLOAD = Rule(
    RuleCard(
        code="FSDP831",
        name="checkpoint-wrapper-offload",
        summary="`checkpoint_wrapper(offload_to_cpu=...)`, removed in torch 2.0",
        explanation="""\
torch 2.0 ignores the argument and recomputes. Since 2.1 it goes to `torch.utils.checkpoint`, which passes it to the
module's `forward` or rejects it. The fix removes `False`. The meaning of `True` depends on the torch release that the
code was written for. 1.13 offloaded *instead of* recomputing: write `offload_wrapper(module)`. 1.11 and 1.12 did both:
write `offload_wrapper(checkpoint_wrapper(module))`.""",
        applicability="safe or manual",
        removed=_OFFLOAD_REMOVED,
        flags=(
            Example(
                before=_IMPORT + "layer = checkpoint_wrapper(layer, offload_to_cpu=False)\n",
                after=_IMPORT + "layer = checkpoint_wrapper(layer)\n",
            ),
            Example(before=_IMPORT + "layer = checkpoint_wrapper(layer, offload_to_cpu=True)\n", note="two meanings"),
        ),
        leaves=(
            _IMPORT + "layer = checkpoint_wrapper(layer)\n",
            "from fairscale.nn import checkpoint_wrapper\n\nlayer = checkpoint_wrapper(layer, offload_to_cpu=True)\n",
        ),
        url=_URL,
    ),
    words=("checkpoint_wrapper",),
    check=check_offload,
    scope="distributed",
)

APPLY = Rule(
    RuleCard(
        code=APPLY_CHECKPOINTING,
        name="apply-activation-checkpointing",
        summary="`apply_activation_checkpointing_wrapper`, renamed to `apply_activation_checkpointing` before torch "
        "1.13",
        explanation="""\
No release has this name. It is from nightly builds before torch 1.13, which released the function as
`apply_activation_checkpointing` with the same arguments. Some tutorials still show the old name.""",
        applicability="safe or manual",
        removed="1.13",
        flags=(
            Example(
                before=f"import {_MODULE} as wrapping\n\n"
                "wrapping.apply_activation_checkpointing_wrapper(model, check_fn=check)\n",
                after=f"import {_MODULE} as wrapping\n\n"
                "wrapping.apply_activation_checkpointing(model, check_fn=check)\n",
            ),
        ),
        leaves=(f"from {_MODULE} import apply_activation_checkpointing\n\napply_activation_checkpointing(model)\n",),
        url=_URL,
    ),
    words=last_parts(APPLY_CHECKPOINTING),
    check=check,
    scope="distributed",
)

OLD_MODULE = Rule(
    RuleCard(
        code=CHECKPOINT_MODULE,
        name="old-checkpoint-wrapper-module",
        summary="an import from `_checkpoint._checkpoint_wrapper`, renamed to `checkpoint_wrapper` in torch 1.12",
        explanation="""\
torch 1.12 renamed the module to `checkpoint_wrapper`, without an alias.""",
        applicability="safe",
        removed="1.12",
        brings=("FSDP836",),
        flags=(
            Example(
                before=f"from {_OLD_MODULE} import checkpoint_wrapper\n",
                after=f"from {_MODULE} import checkpoint_wrapper\n",
            ),
        ),
        leaves=(_IMPORT,),
        url=_URL,
    ),
    words=last_parts(CHECKPOINT_MODULE),
    check=check,
    scope="distributed",
)

REENTRANT = Rule(
    RuleCard(
        code="FSDP834",
        name="checkpoint-use-reentrant",
        summary="`torch.utils.checkpoint.checkpoint` or `checkpoint_sequential` without `use_reentrant`",
        explanation="""\
`checkpoint` without the argument is deprecated since torch 2.1, `checkpoint_sequential` since 2.2. The default is
still True in 2.15, although the warnings announced its end for 2.4 and 2.9.

The fix writes `use_reentrant=True`, which keeps the behaviour. The non-reentrant implementation, False, is the
recommended one: choose it yourself.""",
        applicability="safe",
        severity=Severity.HINT,
        flags=(
            Example(
                before=_PLAIN + "y = checkpoint(layer, x)\n",
                after=_PLAIN + "y = checkpoint(layer, x, use_reentrant=True)\n",
            ),
            Example(
                before=_PLAIN + "y = torch.utils.checkpoint.checkpoint_sequential(layers, 2, x)\n",
                after=_PLAIN + "y = torch.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=True)\n",
                torch=">=2.0",
            ),
        ),
        leaves=(
            _PLAIN + "y = checkpoint(layer, x, use_reentrant=False)\n",
            _PLAIN + "y = checkpoint(layer, x, **options)\n",
            _PLAIN + "y = torch.utils.checkpoint.checkpoint_sequential(layers, 2, x, False)\n",
        ),
        url=_URL,
    ),
    words=("utils.checkpoint", "utils import checkpoint"),
    check=check_reentrant,
    scope="distributed",
    calls=lambda: (Traced(name, missing=_REENTRANT) for name in _REENTRANTS),
)
RULES = (OFFLOAD, APPLY, OLD_MODULE, REENTRANT)
