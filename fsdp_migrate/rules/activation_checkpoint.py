"""FSDP831-834: activation checkpointing.

Sources: catalogue ckptw-module, ckptw-offload, ckptw-apply, ckpt-use-reentrant (checkpoint_wrapper.py of 1.11 to 2.2;
2.1 to 2.15 torch/utils/checkpoint.py: a warning, and True as the default to this day).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from packaging.version import Version

from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, is_literal, ordered_arguments
from fsdp_migrate.findings import Finding, Fix, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, below_floor, finding, manual
from fsdp_migrate.rules.dropped import without
from fsdp_migrate.rules.moved_imports import kept_both
from fsdp_migrate.rules.renames import Rename, check_renames
from fsdp_migrate.rules.torch_presence import lacking
from fsdp_migrate.source import Span
from fsdp_migrate.torch_api.words import span_of

_PACKAGE = "torch.distributed.algorithms._checkpoint"
_MODULE = f"{_PACKAGE}.checkpoint_wrapper"
_OLD_MODULE = f"{_PACKAGE}._checkpoint_wrapper"
# The release in which the module got the name that it has.
_RENAMED = "1.12"
_WRAPPERS = {f"{_MODULE}.checkpoint_wrapper", f"{_OLD_MODULE}.checkpoint_wrapper"}
_OFFLOAD = "offload_to_cpu"
_OFFLOAD_POSITION = 2
_OFFLOAD_REMOVED = "2.0"
_APPLY = Rename(
    (_MODULE,), "apply_activation_checkpointing_wrapper", "apply_activation_checkpointing", "1.13", gone=True
)
_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_REENTRANT = "use_reentrant"
_URL = "https://pytorch.org/docs/stable/checkpoint.html"


def check_offload(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the removed parameter, in a call or in a `functools.partial`."""
    for call in facts.structure.calls:
        shift = _wrapper_arguments(facts, call)
        if shift is None or not any(release >= Version(_OFFLOAD_REMOVED) for release in facts.gates.alive(call)):
            continue
        offload = _offload(call, shift)
        if offload is not None:
            message = f"`checkpoint_wrapper` has no `{_OFFLOAD}` since torch {_OFFLOAD_REMOVED}"
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
            "with torch 1.13 it meant `offload_wrapper(module)`, before that "
            "`offload_wrapper(checkpoint_wrapper(module))`: write what you want"
        )
    if any(keyword.arg in ("checkpoint_fn", None) for keyword in call.keywords):
        return manual("it may be meant for `checkpoint_fn`, which gets all further keywords now: say which")
    return without(facts, call, offload)


def check_old_module(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find imports from the module that torch 1.12 renamed."""
    for statement in facts.structure.imports:
        if not isinstance(statement, ast.ImportFrom) or statement.module != _OLD_MODULE or statement.level:
            continue
        guarded = facts.gates.guarded_import(statement)
        if guarded or not any(release >= Version(_RENAMED) for release in facts.gates.alive(statement)):
            continue
        start = facts.source.span(statement).start
        offset = facts.source.segment(statement).find(_OLD_MODULE)
        verdict = manual(f"import from `{_MODULE}`")
        lost = _not_there(facts, statement)
        if lost:
            verdict = manual(lost)
        elif below_floor(card, facts, statement):
            verdict = _from_both(facts, statement)
        elif offset >= 0:
            at = start + offset
            verdict = Verdict(Fix((Replace(Span(at, at + len(_OLD_MODULE)), _MODULE),)))
        message = f"`{_OLD_MODULE}` exists in torch 1.11 only: it is called `checkpoint_wrapper` since {_RENAMED}"
        yield finding(facts, card, statement, statement, message, verdict)


def _not_there(facts: ModuleFacts, statement: ast.ImportFrom) -> str | None:
    """In words, what some release does not have in the new module either, None when all is there."""
    releases = [r for r in sorted(facts.gates.alive(statement)) if r >= Version(_RENAMED)]
    for name in (alias.name for alias in statement.names if alias.name != "*"):
        without = lacking(f"{_MODULE}.{name}", releases)
        if without:
            return f"`{_MODULE}` has no `{name}` in torch {span_of(without)}: find out what takes its place"
    return None


def _from_both(facts: ModuleFacts, statement: ast.ImportFrom) -> Verdict:
    """The import from where the module is called as it is now, else from the old one."""
    found = facts.scope(statement).bindings
    bindings = [binding for name in found for binding in found[name] if binding.node is statement]
    names = {alias.asname or alias.name: alias.name for alias in statement.names}
    if not bindings or "*" in names:
        return manual(f"a star import: name what is needed from `{_MODULE}`")
    return kept_both(facts, {binding: f"{_MODULE}.{names[binding.name]}" for binding in bindings})


def check_reentrant(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find checkpointed calls that do not say which implementation they want."""
    for call in facts.structure.calls:
        if facts.names.qualified(call.func) != _CHECKPOINT or not call.args or not facts.reached(call):
            continue
        if any(keyword.arg in (None, _REENTRANT) for keyword in call.keywords):
            continue
        old = ordered_arguments(call)
        kept = [Argument(a.arg if isinstance(a, ast.keyword) else None, index) for index, a in enumerate(old)]
        arguments = (*kept, Argument(_REENTRANT, text="True"))
        message = f"`checkpoint` without `{_REENTRANT}` warns since torch 2.1: its default of True is to become False"
        verdict = Verdict(Fix((RewriteCall(facts.source.span(call), None, arguments),)))
        yield finding(facts, card, call.func, facts.statement(call), message, verdict)


_IMPORT = f"from {_MODULE} import checkpoint_wrapper\n\n"
_PLAIN = "import torch.distributed as dist\nfrom torch.utils.checkpoint import checkpoint\n\n"

OFFLOAD = Rule(
    RuleCard(
        code="FSDP831",
        name="checkpoint-wrapper-offload",
        summary="`checkpoint_wrapper(offload_to_cpu=...)`, a parameter of torch 1.11 to 1.13",
        explanation="""\
Torch 2.0 ignores the argument and recomputes; since 2.1 it goes to `torch.utils.checkpoint`, which hands it to the
module's `forward` or refuses it. `False` is dropped. What `True` means depends on the torch that the code was written
for: 1.13 offloaded *instead of* recomputing, today `offload_wrapper(module)`; 1.11 and 1.12 did both, today
`offload_wrapper(checkpoint_wrapper(module))`.""",
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
    needles=("checkpoint_wrapper",),
    check=check_offload,
    neighbour=True,
)

APPLY = Rule(
    RuleCard(
        code="FSDP832",
        name="apply-activation-checkpointing",
        summary="`apply_activation_checkpointing_wrapper`, a name from before torch 1.13",
        explanation="""\
No release has this name: it is from nightlies before torch 1.13, which released the function as
`apply_activation_checkpointing` with the same arguments. Tutorials still show the old one.""",
        applicability="safe or manual",
        removed="1.13",
        floor="1.13",
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
    needles=(_APPLY.old,),
    check=partial(check_renames, renames=(_APPLY,)),
    neighbour=True,
)

OLD_MODULE = Rule(
    RuleCard(
        code="FSDP833",
        name="old-checkpoint-wrapper-module",
        summary="an import from `_checkpoint._checkpoint_wrapper`, the module's name in torch 1.11",
        explanation="""\
Torch 1.12 renamed the module to `checkpoint_wrapper`, without an alias.""",
        applicability="safe",
        removed=_RENAMED,
        floor=_RENAMED,
        flags=(
            Example(
                before=f"from {_OLD_MODULE} import checkpoint_wrapper\n",
                after=f"from {_MODULE} import checkpoint_wrapper\n",
            ),
        ),
        leaves=(_IMPORT,),
        url=_URL,
    ),
    needles=("_checkpoint._checkpoint_wrapper",),
    check=check_old_module,
    neighbour=True,
)

REENTRANT = Rule(
    RuleCard(
        code="FSDP834",
        name="checkpoint-use-reentrant",
        summary="`torch.utils.checkpoint.checkpoint` without `use_reentrant`",
        explanation="""\
It warns since torch 2.1; the default is still True in 2.15, although the warning has announced its end for 2.4 and 2.9.
The fix writes `use_reentrant=True`, which keeps what the code does. The implementation without reentry, False, is the
recommended one: choose it yourself.""",
        applicability="safe",
        severity=Severity.HINT,
        flags=(
            Example(
                before=_PLAIN + "y = checkpoint(layer, x)\n",
                after=_PLAIN + "y = checkpoint(layer, x, use_reentrant=True)\n",
            ),
        ),
        leaves=(
            _PLAIN + "y = checkpoint(layer, x, use_reentrant=False)\n",
            _PLAIN + "y = checkpoint(layer, x, **options)\n",
        ),
        url=_URL,
    ),
    needles=("utils.checkpoint", "utils import checkpoint"),
    check=check_reentrant,
    neighbour=True,
)
RULES = (OFFLOAD, APPLY, OLD_MODULE, REENTRANT)
