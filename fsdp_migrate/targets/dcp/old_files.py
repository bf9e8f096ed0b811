"""FSDP715: optimizer state that one release writes and another cannot read.

Measured on two ranks: files of torch 2.4.1 and 2.6 with AdamW state, read on 2.9 and 2.13 ("Missing key ...
decoupled_weight_decay").
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.state_dicts.new_calls import STATE_DICT, URL, new_calls, states_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_ADDED_KEY = "decoupled_weight_decay"
# The last release seen to write groups without the key, and the first seen to ask for it.
_WITHOUT, _WITH = Version("2.6"), Version("2.9")
_OPTIMIZERS = frozenset({"Adam", "AdamW"})
_OPTIMIZER_STATE = ("get_optimizer_state_dict", "get_state_dict")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find loads of AdamW's state that ask for a key which files of older releases lack."""
    if not _has_such_groups(facts):
        return
    for new in new_calls(facts):
        if new.function != "load" or not new.is_whole or "planner" in new.arguments:
            continue
        templates = (one.function for one in states_of(facts, new) if one.function in _OPTIMIZER_STATE)
        releases = facts.gates.alive(new.call)
        spans = any(r < Version("2.7") for r in releases) and any(r >= _WITH for r in releases)
        if spans and any(templates):
            message = (
                f"files of torch 2.4 to {_WITHOUT} have no `{_ADDED_KEY}` in the parameter groups of Adam and AdamW: "
                f"loading one raises on torch {_WITH}"
            )
            way = "pass `planner=DefaultLoadPlanner(allow_partial_load=True)`, which ignores missing keys"
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


def _has_such_groups(facts: ModuleFacts) -> bool:
    """Whether the file names an optimizer whose groups have got the key."""
    read = any(node.attr in _OPTIMIZERS for node in facts.structure.attributes)
    return read or any(f"torch.optim.{name}" in facts.fsdp.imported for name in _OPTIMIZERS)


_IMPORT = f"""\
import torch
import torch.distributed.checkpoint as dcp
from {STATE_DICT} import get_optimizer_state_dict

"""
_LOAD = (
    "optim = torch.optim.AdamW(model.parameters())\n"
    'state = {"optim": get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path'
)

RULE = Rule(
    RuleCard(
        code="FSDP715",
        name="optimizer-file-of-older-torch",
        summary="`dcp.load` of the state of Adam or AdamW, which cannot read files of torch 2.4 to 2.6",
        explanation=f"""\
`dcp.load` needs every key of the dict that it fills. The parameter groups of Adam and AdamW have `{_ADDED_KEY}` in
newer releases (seen on 2.9 and 2.13), but not in files that torch 2.4 to 2.6 wrote: "Missing key in checkpoint
state_dict".

`DefaultLoadPlanner(allow_partial_load=True)` (since torch 2.4) reads these files, but ignores any other missing key,
too, and is no help on ranks without shards (FSDP720). `fsdp-migrate checkpoint convert` adds the key to a file. This is
a hint, and only given if both kinds of releases are supported.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(Example(before=_IMPORT + _LOAD + ")\n", torch=">=2.4"),),
        leaves=(_IMPORT + _LOAD + ", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))\n",),
        url=URL,
    ),
    words=_OPTIMIZER_STATE,
    check=check,
    scope="distributed",
)
