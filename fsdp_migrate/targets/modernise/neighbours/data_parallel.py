"""FSDP815: arguments of DistributedDataParallel that warn.

Source: catalogue c10d-misc (1.11 to 2.15 nn/parallel/distributed.py: `check_reduction` warns where it is true,
`broadcast_buffers` since 2.13 wherever it is given).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.code.made_calls import made_calls
from fsdp_migrate.code.torch_names import last_words, torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound, is_literal, ordered_arguments
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual

_DDP = frozenset(f"torch.nn.parallel{inner}.DistributedDataParallel" for inner in ("", ".distributed"))
_WORDS = last_words(_DDP)
_CHECK, _BROADCAST = "check_reduction", "broadcast_buffers"
_BROADCAST_WARNS = Version("2.13")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the two arguments in constructions of DistributedDataParallel."""
    for made in made_calls(facts, _WORDS):
        call = made.call
        if torch_path(facts, made.seen.func) not in _DDP:
            continue
        for argument in made.seen.keywords:
            index = made.number(argument)
            if argument.arg == _CHECK and facts.reached(call):
                message = f"`{_CHECK}` has no effect on any torch, and gives a warning if it is true"
                yield finding(
                    facts, card, argument, facts.statement(argument.value), message, _without(facts, call, index)
                )
            elif argument.arg == _BROADCAST and _warns(facts, call):
                message = f"`{_BROADCAST}` is deprecated since torch 2.13"
                verdict = _default(facts, call, index, argument.value)
                # What nothing takes away yet is a hint.
                severity = Severity.HINT if verdict.fix is None else Severity.DEPRECATED
                yield finding(facts, card, argument, facts.statement(argument.value), message, verdict, severity)


def _warns(facts: ModuleFacts, call: ast.Call) -> bool:
    return any(release >= _BROADCAST_WARNS for release in facts.gates.alive(call))


def _default(facts: ModuleFacts, call: ast.Call, index: int | None, value: ast.expr) -> Verdict:
    if is_literal(value, True):
        return _without(facts, call, index)
    return manual(
        "choose between them: `forward_sync_buffers=False` still copies the buffers once when the model is built"
    )


def _without(facts: ModuleFacts, call: ast.Call, index: int | None) -> Verdict:
    if index is None:
        return manual("it comes from a dict: drop it there")
    arguments = ordered_arguments(call)
    argument = arguments[index]
    assert isinstance(argument, ast.keyword)
    if not isinstance(argument.value, ast.Constant):
        return manual(f"remove `{argument.arg}`, unless its value has side effects")
    return without(facts, call, Bound(argument.value, index))


_IMPORT = "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP815",
        name="data-parallel-arguments",
        summary=f"`{_CHECK}` and `{_BROADCAST}` of DistributedDataParallel",
        explanation="""\
`check_reduction` has had no effect since before torch 1.11, and gives a warning if it is true. The fix removes it.
`broadcast_buffers` is deprecated since 2.13 with any value. The fix removes True, the default on every release.
False is manual and a hint: its successor `forward_sync_buffers=False` copies the buffers from rank 0 when the model
is built, which `broadcast_buffers=False` does not, and older releases do not have it.""",
        applicability="safe or manual",
        deprecated="1.11",
        flags=(
            Example(
                before=_IMPORT + f"model = DDP(net, {_CHECK}=True, device_ids=[rank])\n",
                after=_IMPORT + "model = DDP(net, device_ids=[rank])\n",
            ),
            Example(
                before=_IMPORT + f"model = DDP(net, device_ids=[rank], {_BROADCAST}=True)\n",
                after=_IMPORT + "model = DDP(net, device_ids=[rank])\n",
            ),
            Example(before=_IMPORT + f"model = DDP(net, {_BROADCAST}=False)\n"),
        ),
        leaves=(_IMPORT + "model = DDP(net, device_ids=[rank])\n",),
        url="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    words=tuple((name, "DistributedDataParallel") for name in (_CHECK, _BROADCAST)),
    check=check,
    scope="distributed",
)
