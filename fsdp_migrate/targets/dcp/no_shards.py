"""FSDP720: shards of FSDP1 models on ranks that have no part of some parameter.

Run on two ranks with a parameter of one row, without a device mesh. `get_model_state_dict` asks a ShardedTensor for its
only local shard, which the second rank lacks, on torch 2.2.2 to 2.7.1. `DefaultLoadPlanner` leaves such a tensor out of
what it looks for, and takes a file that has it for one of torch 2.3, on torch 2.5.1 to 2.13.0 (not on 2.4.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.sharded_models import is_somewhere_whole
from fsdp_migrate.code.state_dicts.new_calls import STATE_DICT, URL, new_calls, states_of, works_on_shards
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_WEIGHTS = ("get_model_state_dict", "get_state_dict")
_MOMENTS = ("get_optimizer_state_dict", "get_state_dict")
# The first release whose getter takes tensors without local shards, and the first whose planner was seen to go wrong.
_TAKEN, _MISTAKEN = Version("2.8"), Version("2.5")
_WHERE = "a rank that has no part of some parameter, as one with fewer rows than ranks"


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find shards of FSDP1 models without a mesh: taken on older releases, or a template for newer ones."""
    if not facts.fsdp.builds_without_mesh or is_somewhere_whole(facts):
        return
    way = "build the model with a `device_mesh`: its shards are DTensors then"
    for new in new_calls(facts):
        model = new.arguments.get("model")
        is_taken = new.function in _WEIGHTS and model is not None and facts.fsdp.is_instance(model)
        if is_taken and works_on_shards(facts, new) and any(r < _TAKEN for r in facts.gates.alive(new.call)):
            message = f"`{new.function}` raises up to torch 2.7 on {_WHERE}"
            least = f"{way}, or require torch>={_TAKEN}"
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(least))
        if new.function == "load" and any(release >= _MISTAKEN for release in facts.gates.alive(new.call)):
            found = [one for one in states_of(facts, new) if one.function in _MOMENTS and works_on_shards(facts, one)]
            models = (one.arguments.get("model") for one in found)
            if any(one is not None and facts.fsdp.is_instance(one) for one in models):
                message = f"`load` of the optimizer's shards raises since torch {_MISTAKEN} on {_WHERE}"
                yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


_IMPORT = f"""\
import torch.distributed.checkpoint as dcp
from {STATE_DICT} import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
_STATE = 'state = {"optim": get_optimizer_state_dict(model, optim)}\n'
_LOAD = "dcp.load(state, checkpoint_id=path)\n"

RULE = Rule(
    RuleCard(
        code="FSDP720",
        name="rank-without-shards",
        summary="sharded state of an FSDP1 model without `device_mesh`, where a rank may have no part of a parameter",
        explanation=f"""\
FSDP1 shards a parameter's state by rows. With fewer rows than ranks (a class token, a router of 8 experts on 16 ranks)
the last ranks have none. Their ShardedTensor has no local shard, which torch does not expect:

* Up to torch 2.7 `get_model_state_dict` and `get_state_dict` without `full_state_dict=True` raise on these ranks, and
  the others wait for them.
* Since torch {_MISTAKEN} (not 2.4) `dcp.load` into `get_optimizer_state_dict` takes the file for one of torch 2.3 there
  and raises "Missing key". With `DefaultLoadPlanner(allow_partial_load=True)` these ranks keep the learning rate and
  all else that their parameter groups had, without an error.

With a `device_mesh` the state has DTensors, which may be empty. This is a hint, because it depends on the shapes.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(
            Example(before=_IMPORT + "model = FSDP(net)\nweights = get_model_state_dict(model)\n", torch=">=2.4,<2.8"),
            Example(before=_IMPORT + "model = FSDP(net)\n" + _STATE + _LOAD, torch=">=2.8"),
        ),
        leaves=(
            _IMPORT + "model = FSDP(net, device_mesh=mesh)\nweights = get_model_state_dict(model)\n" + _STATE + _LOAD,
        ),
        url=URL,
    ),
    words=_WEIGHTS + _MOMENTS[:1],
    check=check,
    scope="distributed",
)
