"""FSDP210 under the target: `FSDP.state_dict_type` gives way to `torch.distributed.checkpoint.state_dict`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from packaging.version import Version

from fsdp_migrate.code.state_dicts.context_functions import context_function, of_function
from fsdp_migrate.code.state_dicts.rewriting import Rewritten, of_setting
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.rules.index import entry_of
from fsdp_migrate.source import Span
from fsdp_migrate.targets.dcp.bare_calls import METHODS, bare_calls

_FLOOR = "2.2"
_QUIET = Version("2.5")  # before it the new functions set the type themselves, and warn
_SETTERS = ("state_dict_type", "set_state_dict_type")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find every setting of a state-dict type, with what takes its place."""
    for method in _SETTERS:
        for setting in facts.fsdp.settings(method):
            if facts.reached(setting.call):
                yield _finding(facts, card, setting)
    yield from bare_calls(facts, card)


def rewritten(facts: ModuleFacts) -> list[tuple[Span, Fix]]:
    """The statements that the target safely rewrites as a whole, each with its fix."""

    def found() -> list[tuple[Span, Fix]]:
        fixes = []
        for method in _SETTERS:
            for setting in facts.fsdp.settings(method):
                new = of_setting(facts, setting)
                if isinstance(new, str) or new.verdict.fix is None or new.verdict.unsafe is not None:
                    continue
                if facts.reached(setting.call) and facts.torch.oldest >= Version(new.floor):
                    fixes.append((facts.source.span(facts.statement(setting.call)), new.verdict.fix))
        return fixes

    return facts.memo(rewritten, found)


def _finding(facts: ModuleFacts, card: RuleCard, setting: TypeSetting) -> Finding:
    function = context_function(facts, setting)
    new = of_setting(facts, setting) if function is None else of_function(function)
    if isinstance(new, str):
        return told(facts, card, setting, manual(new), _FLOOR, ())
    if isinstance(new, Rewritten):
        return told(facts, card, setting, new.verdict, new.floor, new.functions)
    if len(new.fixes) > 1:
        others = ", ".join(sorted(os.path.basename(path) for path in new.fixes if path != facts.path))
        verdict = manual(f"the blocks of {others} use this context: run on all files together")
        return told(facts, card, setting, verdict, _FLOOR, new.functions)
    return told(facts, card, setting, new.verdict(facts.path), new.floor, new.functions)


def told(
    facts: ModuleFacts,
    card: RuleCard,
    setting: TypeSetting,
    verdict: Verdict,
    floor: str,
    functions: Sequence[str],
) -> Finding:
    """The finding for a setting, with the verdict on it and the new functions."""
    name = getattr(setting.call.func, "attr", "")
    calls = " and ".join(f"`{one}`" for one in functions) or "torch.distributed.checkpoint.state_dict"
    too_old = facts.torch.oldest < Version(floor)
    if verdict.fix is not None and too_old and facts.gates.alive(setting.call).issuperset(facts.torch.releases):
        verdict = manual("the project supports releases that are too old for it")
    message = f"`FSDP.{name}` is deprecated since torch {card.deprecated}: use {calls}"
    if verdict.fix is not None and any(release < _QUIET for release in facts.gates.alive(setting.call)):
        message = f"{message} (on torch 2.4 these warn too)"
    card = card._replace(floor=floor)
    return finding(facts, card, setting.call.func, facts.statement(setting.call), message, verdict)


_BEFORE = """\
import torch
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType

def save(model, rank, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
"""

_AFTER = """\
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

def save(model, rank, path):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if rank == 0:
        torch.save(state, path)
"""


def _rule() -> Rule:
    base = entry_of("FSDP210").load()
    flags = (Example(before=_BEFORE, after=_AFTER, torch=">=2.4"),)
    card = base.card._replace(severity=None, applicability="safe, unsafe or manual", floor=_FLOOR, flags=flags)
    card = card._replace(brings=(card.code,))  # of a function that nobody calls any more, but may be asked for
    return base._replace(card=card, words=(*base.words, *METHODS), check=check, target="dcp")


RULE = _rule()
