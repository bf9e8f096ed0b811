"""FSDP716: shards that the default stager of `dcp.async_save` cannot copy.

Seen on two ranks: torch 2.9.1 and 2.13 raise "torch function 'data_ptr' ..." for a ShardedTensor, 2.4.1 and 2.6 do not;
`DefaultStager` (staging.py) is there since 2.9. A `FileSystemWriter` stages by itself, as in all of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.sharded_models import is_somewhere_whole
from fsdp_migrate.code.state_dicts.new_calls import (
    GETTERS,
    STATE_DICT,
    URL,
    NewCall,
    new_calls,
    parts_of,
    stateful_class,
    works_on_shards,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_STAGED_SINCE = Version("2.9")
_STAGING = ("storage_writer", "async_stager")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `async_save` of an FSDP1 model's shards that leaves their copy to the default stager."""
    for new in new_calls(facts):
        given = (new.arguments.get(name) for name in _STAGING)
        if new.function != "async_save" or not new.is_whole or any(map(_is_given, given)):
            continue
        if not any(release >= _STAGED_SINCE for release in facts.gates.alive(new.call)):
            continue
        if _holds_shards(facts, new):
            message = (
                f"`async_save` cannot copy ShardedTensors since torch {_STAGED_SINCE}, and the state of an FSDP1 model "
                "without a `device_mesh` is made of them: it raises (`data_ptr`)"
            )
            way = "pass `storage_writer=FileSystemWriter(path)`, which copies them, or build the model with a mesh"
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


def _is_given(node: ast.expr | None) -> bool:
    return node is not None and not is_literal(node, None)


def _holds_shards(facts: ModuleFacts, new: NewCall) -> bool:
    """Whether a part of what is saved is the sharded state of an FSDP1 model that has no mesh."""
    if not facts.fsdp.builds_without_mesh or is_somewhere_whole(facts):
        return False
    getters = {id(one.call): one for one in new_calls(facts) if one.function in GETTERS}
    for part in parts_of(facts, new):
        getter = getters.get(id(part))
        if getter is not None and works_on_shards(facts, getter) and _is_model(facts, getter.arguments.get("model")):
            return True
        cls = stateful_class(facts, part) if isinstance(part, ast.Call) else None
        if cls is not None and isinstance(part, ast.Call) and any(_is_model(facts, one) for one in _given(part)):
            inside = {id(node) for node in ast.walk(cls)}
            own = [one for one in getters.values() if id(one.call) in inside]
            return bool(own) and all(works_on_shards(facts, one) for one in own)
    return False


def _given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _is_model(facts: ModuleFacts, node: ast.expr | None) -> bool:
    return node is not None and facts.fsdp.is_instance(node)


_IMPORT = f"""\
import torch.distributed.checkpoint as dcp
from {STATE_DICT} import get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
_STATE = 'state = {"model": get_model_state_dict(model)}\n'
_SAVE = "dcp.async_save(state, checkpoint_id=path)\n"

RULE = Rule(
    RuleCard(
        code="FSDP716",
        name="async-save-of-sharded-tensors",
        summary="`dcp.async_save` without a storage writer, for an FSDP1 model that has no `device_mesh`",
        explanation=f"""\
Without a `device_mesh` the shards of an FSDP1 model are ShardedTensors. Since torch {_STAGED_SINCE} `async_save`
copies what it saves by a stager of its own, which raises "torch function 'data_ptr' ..." for them (seen on 2.9 and
2.13; 2.4 and 2.6 copy them).

A `FileSystemWriter` has a stager that copies them. With a `device_mesh` the shards are DTensors, which every stager
copies. Full state dicts, FSDP2, DDP and plain models are not affected.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(Example(before=_IMPORT + "model = FSDP(net)\n" + _STATE + _SAVE),),
        leaves=(
            _IMPORT
            + "model = FSDP(net)\n"
            + _STATE
            + "dcp.async_save(state, storage_writer=dcp.FileSystemWriter(path))\n",
            _IMPORT + "model = FSDP(net, device_mesh=mesh)\n" + _STATE + _SAVE,
        ),
        url=URL,
    ),
    words=("async_save",),
    check=check,
    scope="distributed",
)
