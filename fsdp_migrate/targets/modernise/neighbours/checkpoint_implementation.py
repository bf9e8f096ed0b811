"""FSDP835 and FSDP836: which implementation of activation checkpointing runs.

Sources: catalogue comp-checkpoint (2.0.1 to 2.5.1 _composable/checkpoint_activation.py) and ckptw-impl-default
(checkpoint_wrapper.py: the default is `NO_REENTRANT` since 2.2, and `REENTRANT` warns from 2.1 to 2.10).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.code.made_calls import made_calls
from fsdp_migrate.code.possible_values import choice
from fsdp_migrate.code.torch_names import calls_ending_in, last_words, torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, is_literal, ordered_arguments
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_COMPOSABLE = frozenset(f"torch.distributed._composable{inner}.checkpoint" for inner in ("", ".checkpoint_activation"))
_REENTRANT = "use_reentrant"
_ALWAYS_NEW = Version("2.1")
_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper"
_IMPL = "checkpoint_impl"
_OLD_IMPL = (f"{_WRAPPER.rpartition('.')[0]}.CheckpointImpl.REENTRANT",)
_DEFAULT_CHANGED = Version("2.2")
_WARNS, _SILENT = Version("2.1"), Version("2.11")


def check_composable(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls of the composable `checkpoint` that choose, or rely on what torch 2.0 chose."""
    for call in calls_ending_in(facts, last_words(_COMPOSABLE)):
        if torch_path(facts, call.func) not in _COMPOSABLE or any(keyword.arg is None for keyword in call.keywords):
            continue
        releases = facts.gates.alive(call)
        new = any(release >= _ALWAYS_NEW for release in releases)
        arguments = list(enumerate(ordered_arguments(call)))
        found = next(((n, one) for n, one in arguments if isinstance(one, ast.keyword) and one.arg == _REENTRANT), None)
        if found is not None and new:
            message = (
                f"`checkpoint` is never reentrant since torch 2.1, and does not accept `{_REENTRANT}` from 2.1 to 2.4"
            )
            verdict = _without(facts, call, *found)
            yield finding(facts, card, found[1], facts.statement(call), message, verdict)
        elif found is None and new and any(release < _ALWAYS_NEW for release in releases):
            message = "`checkpoint` is reentrant in torch 2.0 but not since 2.1"
            verdict = manual(f"pass `{_REENTRANT}=False` on torch 2.0 for the behaviour of later releases")
            yield finding(facts, card, call.func, facts.statement(call), message, verdict, Severity.CHANGES)


def _without(facts: ModuleFacts, call: ast.Call, index: int, argument: ast.keyword | ast.expr) -> Verdict:
    value = argument.value if isinstance(argument, ast.keyword) else argument
    if not is_literal(value, False):
        return manual(
            "remove it: no reentrant implementation exists since torch 2.1, and torch 2.5 raises "
            "NotImplementedError for True"
        )
    return without(facts, call, Bound(value, index))


def check_wrapper(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find wrapped modules that leave the implementation to torch, or choose the one that warned."""
    told: set[ast.expr] = set()
    for made in made_calls(facts, last_words((_WRAPPER,))):
        call, seen = made.call, made.seen
        is_starred = any(isinstance(one, ast.Starred) for one in seen.args)
        if torch_path(facts, seen.func) != _WRAPPER or is_starred or _has_own_function(seen):
            continue
        releases = facts.gates.alive(call)
        chosen = _chosen(seen)
        if chosen is None:
            spans = any(r < _DEFAULT_CHANGED for r in releases) and any(r >= _DEFAULT_CHANGED for r in releases)
            if spans and not made.unread and (made.partial or not made.more):
                message = f"the default of `{_IMPL}` is REENTRANT before torch 2.2 and NO_REENTRANT since"
                verdict = manual(f"pass `{_IMPL}=` for the same behaviour on all releases; prefer NO_REENTRANT")
                yield finding(facts, card, call.func, facts.statement(call), message, verdict, Severity.HINT)
        elif (place := choice(facts, chosen, _OLD_IMPL)) is not None:
            warned = [release for release in releases if _WARNS <= release < _SILENT]
            if warned and place not in told:
                told.add(place)
                message = "`CheckpointImpl.REENTRANT` is deprecated from torch 2.1 to 2.10"
                verdict = manual(
                    "use NO_REENTRANT: it computes the same, and accepts keywords and inputs without gradient"
                )
                severity = Severity.DEPRECATED if max(releases) in warned else Severity.HINT
                yield finding(facts, card, place, facts.statement(place), message, verdict, severity)


def _has_own_function(call: ast.Call) -> bool:
    """Whether the call gives its own checkpoint function, so that the implementation does not matter."""
    return len(call.args) > 2 or any(keyword.arg == "checkpoint_fn" for keyword in call.keywords)


def _chosen(call: ast.Call) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == _IMPL), None)
    return named or (call.args[1] if len(call.args) > 1 else None)


_IMPORT = "from torch.distributed._composable import checkpoint\n\n"
_WRAP = f"from {_WRAPPER.rpartition('.')[0]} import CheckpointImpl, checkpoint_wrapper\n\n"

COMPOSABLE = Rule(
    RuleCard(
        code="FSDP835",
        name="composable-checkpoint",
        summary=f"`{_REENTRANT}` of `torch.distributed._composable.checkpoint`",
        explanation="""\
In torch 2.0 the function accepts `use_reentrant`, by default True. Since 2.1 it is never reentrant: 2.1 to 2.4
raise TypeError for the argument, and later releases accept False and raise NotImplementedError for True. The fix
removes False if 2.0 is not supported. A call without the argument changes its behaviour between 2.0 and 2.1.""",
        applicability="safe or manual",
        removed="2.1",
        floor="2.1",
        flags=(
            Example(
                before=_IMPORT + f"checkpoint(layer, {_REENTRANT}=False)\n",
                after=_IMPORT + "checkpoint(layer)\n",
            ),
            Example(before=_IMPORT + f"checkpoint(layer, {_REENTRANT}=True)\n"),
            Example(before=_IMPORT + "checkpoint(layer)\n", torch=">=2.0"),
        ),
        leaves=(
            _IMPORT + "checkpoint(layer)\n",
            f"from torch.utils.checkpoint import checkpoint\n\ncheckpoint(layer, x, {_REENTRANT}=True)\n",
        ),
        url="https://github.com/pytorch/pytorch/blob/v2.1.0/torch/distributed/_composable/checkpoint_activation.py",
    ),
    scope="near",
    words=(("_composable", "checkpoint"),),
    check=check_composable,
)

WRAPPER = Rule(
    RuleCard(
        code="FSDP836",
        name="checkpoint-wrapper-implementation",
        summary="`checkpoint_wrapper` with the default implementation, which changed in torch 2.2, or with `REENTRANT`",
        explanation="""\
The default of `checkpoint_wrapper` is `CheckpointImpl.REENTRANT` up to torch 2.1 and `NO_REENTRANT` since 2.2. That is
a hint while both are supported: results are equal, but the reentrant implementation accepts no keyword arguments and
needs an input with a gradient. An explicit `REENTRANT` is deprecated from 2.1 to 2.10.""",
        applicability="manual",
        severity=Severity.DEPRECATED,
        flags=(
            Example(before=_WRAP + "layer = checkpoint_wrapper(layer)\n"),
            Example(before=_WRAP + "layer = checkpoint_wrapper(layer, CheckpointImpl.REENTRANT)\n"),
        ),
        leaves=(_WRAP + "layer = checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT)\n",),
        url="https://pytorch.org/docs/stable/checkpoint.html",
    ),
    scope="near",
    words=("checkpoint_wrapper",),
    check=check_wrapper,
)
RULES = (COMPOSABLE, WRAPPER)
