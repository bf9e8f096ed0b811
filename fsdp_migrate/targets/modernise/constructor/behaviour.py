"""FSDP508 and FSDP509: what FSDP models do otherwise than in older releases, without any other name.

Sources: catalogue ctor-hsdp-sync (2.12.0 _init_utils.py:619) and clip-grad-norm (1.13.1 and 2.0.1
fully_sharded_data_parallel.py: the method returns nothing, and the norm).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.construction import constructions, given
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, floor_or, manual

_SYNC, _STRATEGY, _HYBRID = "sync_module_states", "sharding_strategy", "HYBRID_SHARD"
_OUTER_FIRST = Version("2.12")
_CLIP = "clip_grad_norm_"
_RETURNS = Version("2.0")


def check_hybrid(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find models sharded in groups whose states are to be synchronised, on both sides of the change."""
    for call in constructions(facts):
        arguments = {one.name: one.value for one in given(facts) if one.call is call}
        strategy, sync = arguments.get(_STRATEGY), arguments.get(_SYNC)
        if strategy is None or sync is None or not is_literal(sync, True):
            continue
        name = facts.names.qualified(strategy)
        releases = facts.gates.alive(call)
        spans = any(one < _OUTER_FIRST for one in releases) and any(one >= _OUTER_FIRST for one in releases)
        if spans and _HYBRID in (name or ""):
            message = (
                f"`{_SYNC}` of {_HYBRID} broadcasts from global rank 0 since torch 2.12, and from one rank of "
                "each node before"
            )
            verdict = manual("load the same values on all ranks; nothing changes if every node already does")
            yield finding(facts, card, sync, facts.statement(call), message, verdict)


def check_clipped(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find uses of the norm that clipping returns, where a supported release returns none."""
    for call in facts.structure.calls:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != _CLIP or not facts.fsdp.is_instance(func.value, _CLIP):
            continue
        unused = isinstance(facts.structure.parents[call], ast.Expr)
        if not unused and any(release < _RETURNS for release in facts.gates.alive(call)):
            message = f"`{_CLIP}` of an FSDP model returns None before torch 2.0"
            verdict = floor_or(facts, "check the result for None", str(_RETURNS))
            yield finding(facts, card, func, facts.statement(call), message, verdict)


_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
_HSDP = _IMPORT + f"model = FSDP(net, {_STRATEGY}=ShardingStrategy.{_HYBRID}, {_SYNC}={{}})\n"
_CLIPPED = _IMPORT + f"model = FSDP(net)\n{{}}model.{_CLIP}(1.0)\n"
_URL = "https://pytorch.org/docs/stable/fsdp.html"

HYBRID = Rule(
    RuleCard(
        code="FSDP508",
        name="hybrid-shard-sync",
        summary=f"`{_SYNC}=True` of a model that is sharded in groups",
        explanation="""\
Up to torch 2.11 `sync_module_states=True` with `HYBRID_SHARD` broadcast the states inside each node first. Nodes
whose first rank had other values kept some of them. Since 2.12 all ranks get the values of global rank 0. This is a
hint while both are supported: code that loads on one rank only is right from 2.12 on.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(Example(before=_HSDP.format("True")),),
        leaves=(_HSDP.format("False"), _HSDP.format("True").replace(_HYBRID, "FULL_SHARD")),
        url=_URL,
    ),
    scope="models",
    words=(_SYNC,),
    check=check_hybrid,
)

CLIPPED = Rule(
    RuleCard(
        code="FSDP509",
        name="clip-grad-norm-result",
        summary=f"the result of an FSDP model's `{_CLIP}` where torch 1.x is supported",
        explanation="""\
The method returns the total norm since torch 2.0. In 1.12 and 1.13 it clips and returns None, which fails when the
norm is logged or compared.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(Example(before=_CLIPPED.format("norm = "), torch=">=1.12"),),
        leaves=(_CLIPPED.format("norm = "), _CLIPPED.format("")),
        url=_URL,
    ),
    scope="models",
    words=(_CLIP,),
    check=check_clipped,
)
RULES = (HYBRID, CLIPPED)
