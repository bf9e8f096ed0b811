"""`load_sharded_optimizer_state_dict`: a template from `get_optimizer_state_dict` that `load` fills takes its place."""

from __future__ import annotations

import ast

from fsdp_migrate.code.argument_roles import has_effect
from fsdp_migrate.code.state_dicts.functions import reads_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

PACKAGE, LOAD = "torch.distributed.checkpoint", "load"
_TO_LOAD = "optim_state_dict_to_load"
_NAMES = frozenset(
    f"{package}{name}"
    for package in (PACKAGE, "torch.distributed._shard.checkpoint")
    for name in (".optimizer.load_sharded_optimizer_state_dict", ".load_sharded_optimizer_state_dict")
)
_PARAMETERS = ("model_state_dict", "optimizer_key", "storage_reader", "planner")
REASON = (
    "`load` raises where the file lacks state that the optimizer has, as files of torch 2.4 to 2.6 do from 2.9 on: "
    "pass `planner=DefaultLoadPlanner(allow_partial_load=True)`, which accepts every missing key"
)
# Seen on torch 2.13: the rates of a LambdaLR that is made behind such a load then start from the one that was saved.
OF_GROUPS = (
    "what the file has of parameter groups and the optimizer does not is not loaded, such as the `initial_lr` of a "
    "scheduler that is made later: make schedulers before the optimizer is loaded"
)
# The planner takes a file for one of torch 2.3 where a rank has no shard of what the file has (seen on 2.5.1 to 2.13).
WITHOUT_SHARDS = (
    "without a `device_mesh`, `load` raises on a rank that has no part of some parameter, and with that planner leaves "
    "this rank's parameter groups as they are"
)


class ShardedLoad(NamedTuple):
    """A call of the function whose result has a name and goes into the optimizer.

    `dropped` is the model's state dict, which the new functions do not ask for.
    """

    call: ast.Call
    name: str
    key: ast.expr
    reader: ast.expr
    planner: ast.expr | None
    dropped: ast.expr


def sharded_load(facts: ModuleFacts, state: ast.expr, model: ast.expr, optimizer: ast.expr) -> ShardedLoad | None:
    """The load behind `state`, which is to be loaded into `optimizer`; None if another way leads there."""
    if not isinstance(state, ast.Subscript) or not isinstance(state.value, ast.Name):
        return None
    bindings = facts.names.bindings(state.value)
    call = bindings[0].value if len(bindings) == 1 else None
    if not isinstance(call, ast.Call) or facts.names.qualified(call.func) not in _NAMES:
        return None
    statement = facts.structure.parents[call]
    target = bindings[0].node
    if not isinstance(statement, ast.Assign) or statement.targets != [target] or not isinstance(target, ast.Name):
        return None
    if facts.function(call) is not facts.function(state) or reads_of(facts, target) != [state.value]:
        return None
    try:
        bound = bind(call, _PARAMETERS, 3)
    except BindingError:
        return None
    dropped, key, reader = (bound[name].value for name in _PARAMETERS[:3])
    planner = bound.get("planner")
    same_key = ast.dump(key) == ast.dump(state.slice)
    if not same_key or not all(_is_bound(facts, one, call) for one in (model, optimizer)) or _does_more(facts, dropped):
        return None
    return ShardedLoad(call, target.id, key, reader, None if planner is None else planner.value, dropped)


def is_only_for_load(facts: ModuleFacts, asked: ast.Call) -> bool:
    """Whether a model is asked for its state for a `ShardedLoad` alone, wherever that goes into the optimizer."""
    parent = facts.structure.parents[asked]
    call = facts.structure.parents[parent] if isinstance(parent, ast.keyword) else parent
    statement = facts.structure.parents.get(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or facts.names.qualified(call.func) not in _NAMES:
        return False
    for use in reads_of(facts, target) if isinstance(target, ast.Name) else ():
        state = facts.structure.parents[use]
        loads = facts.structure.parents.get(state)
        loads = facts.structure.parents[loads] if isinstance(loads, ast.keyword) else loads
        if isinstance(loads, ast.Call) and getattr(loads.func, "attr", "") == _TO_LOAD:
            found = _load_in(facts, loads, state)
            return found is not None and found.dropped is asked
    return False


def _load_in(facts: ModuleFacts, loads: ast.Call, state: ast.AST) -> ShardedLoad | None:
    try:
        bound = bind(loads, ("model", "optim", "optim_state_dict"), 3)
    except BindingError:
        return None
    model, optimizer, given = (bound[name].value for name in ("model", "optim", "optim_state_dict"))
    return sharded_load(facts, given, model, optimizer) if given is state else None


def _is_bound(facts: ModuleFacts, node: ast.expr, at: ast.AST) -> bool:
    """Whether what a name or a chain starts with has at `at` the meaning that it has where it stands."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if not isinstance(node, ast.Name):
        return False
    bindings = facts.names.bindings(node)
    return bool(bindings) and all(one.scope is not facts.scope(at) or one.position < place_of(at) for one in bindings)


def _does_more(facts: ModuleFacts, dropped: ast.expr) -> bool:
    """Whether evaluating an expression does more than to ask a model for its state."""
    if isinstance(dropped, ast.Call) and isinstance(dropped.func, ast.Attribute) and dropped.func.attr == "state_dict":
        return bool(dropped.args or dropped.keywords) or has_effect(facts, dropped.func.value)
    return has_effect(facts, dropped)
