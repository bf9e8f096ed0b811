"""What may be observed after a rewrite, from which torch on it holds, and what no rewrite fits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from packaging.version import Version

from fsdp_migrate.code.sharded_models import builds_with_mesh, has_flat_parameters
from fsdp_migrate.code.state_dicts.calls import StateCall
from fsdp_migrate.code.state_dicts.compiled import compiled
from fsdp_migrate.code.state_dicts.group_values import odd_group_value
from fsdp_migrate.code.state_dicts.mapping import FULL_OPTION, LOAD_MODEL, LOAD_OPTIMIZER, SAVE_MODEL, SAVE_OPTIMIZER
from fsdp_migrate.code.state_dicts.own_state import added_keys, extra_state
from fsdp_migrate.code.state_dicts.ranks import runs_on_rank_0_only
from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.code.state_dicts.sharded_loads import OF_GROUPS, REASON, WITHOUT_SHARDS
from fsdp_migrate.code.state_dicts.steps import may_precede_first_step
from fsdp_migrate.code.state_dicts.uses import used_elsewhere
from fsdp_migrate.code.state_dicts.writing import Anew
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

# What wraps parts of a model for recomputation: the new functions know of it since torch 2.3 [20 20o]. Since then they
# also take a part of a model by itself [22 22o].
_CHECKPOINTING = (b"checkpoint_wrapper", b"apply_activation_checkpointing")
_FLOOR_OF_PARTS = "2.3"
# Seen on 2.13: `get_model_state_dict(model.head)` asks the unit around for the parameters of a flat one.
_FLAT_PART = "a part that is not wrapped by itself raises where parameters are flat"
# Until then `get_model_state_dict` asks each ShardedTensor for its only local shard (seen on 2.2.2 to 2.7.1).
_ANY_SHARDS = Version("2.8")


class Difference(NamedTuple):
    """Something that may be observed after a rewrite.

    It may be about loading an optimizer, or about what only models of FSDP1 have: ShardedTensors, flat parameters.
    """

    text: str
    of_load: bool = False
    of_fsdp1: bool = False


def check_flow(facts: ModuleFacts, node: ast.AST, calls: Sequence[Anew], *, takes_compiled: bool = False) -> None:
    """Let pass what all ranks run with a model that is not compiled, and whose state is its parameters and buffers.

    Raises:
        NotUnderstood: it is another case.
    """
    where = None if takes_compiled else compiled(facts, node)
    if where is not None:
        raise NotUnderstood(
            f"the model may come from {where}: the new functions leave `_orig_mod.` out of all names, so files get "
            "other keys"
        )
    if runs_on_rank_0_only(facts, node):
        raise NotUnderstood("only rank 0 reaches this code, and the new functions need all ranks: move the calls out")
    added = added_keys(facts, node) if any(call.old.function == SAVE_MODEL for call in calls) else None
    if added is not None:
        raise NotUnderstood(
            f"{added} may add keys to the state dict that name nothing in the model: the new functions raise an "
            "AttributeError for them"
        )


def floor_of(facts: ModuleFacts, calls: Sequence[Anew]) -> str:
    """The oldest torch on which the new calls do what the old ones did."""
    floors = [call.row.floor for call in calls]
    floors += [_FLOOR_OF_PARTS for call in calls if call.old.is_part]
    if any(mark in facts.source.data for mark in _CHECKPOINTING):
        floors.append(_FLOOR_OF_PARTS)
    return max(floors, key=Version, default="0")


def differences(facts: ModuleFacts, calls: Sequence[Anew]) -> tuple[Difference, ...]:
    """What may be observed after the rewrite."""
    reasons: list[Difference] = []
    for call in calls:
        old, row = call
        if row.unsafe is not None:
            reasons.append(Difference(row.unsafe, old.function == LOAD_OPTIMIZER))
        if old.reading is not None:
            reasons += [Difference(REASON, True), Difference(OF_GROUPS)]
        if old.is_part and isinstance(old.module, ast.Attribute) and has_flat_parameters(facts):
            reasons.append(Difference(_FLAT_PART, of_fsdp1=True))
        if not builds_with_mesh(facts):
            reasons += _differences_without_shards(facts, call)
        if row.on_rank_0 and (use := used_elsewhere(facts, old.call)) is not None:
            what = "an empty dict" if old.function == SAVE_MODEL else "no optimizer state"
            reasons.append(Difference(f"ranks other than 0 get {what}: {use.reason}"))
        if old.function == SAVE_OPTIMIZER and (early := may_precede_first_step(facts, old.call)) is not None:
            told = f"an optimizer that has not stepped gets a state that counts one step: {early}"
            reasons.append(Difference(told))
        if old.function == SAVE_OPTIMIZER and row.options and old.optimizer is not None:
            value = odd_group_value(facts, old.optimizer)
            if value is not None:
                reasons.append(Difference(f"{value} in a parameter group raises: it is no tensor, number or string"))
        of_full = old.function == SAVE_MODEL and FULL_OPTION in row.options
        if of_full and (place := extra_state(facts, old.call)) is not None:
            reasons.append(Difference(f"extra state that is no tensor, number, string or dict raises ({place})"))
        if old.function == LOAD_MODEL and FULL_OPTION in row.options:
            reasons += map(Difference, _differences_of_full_load(facts, old))
    return tuple(dict.fromkeys(reasons))


def _differences_without_shards(facts: ModuleFacts, call: Anew) -> Iterator[Difference]:
    """What a rank sees that has no part of some parameter, where shards are ShardedTensors."""
    old, row = call
    if old.reading is not None:
        yield Difference(WITHOUT_SHARDS, True, True)
    releases = facts.gates.alive(old.call)
    if old.function == SAVE_MODEL and FULL_OPTION not in row.options and any(one < _ANY_SHARDS for one in releases):
        yield Difference(
            of_fsdp1=True,
            text="up to torch 2.7 a model without a `device_mesh` raises on a rank that has no part of some parameter, "
            "as where there are fewer rows than ranks",
        )


def _differences_of_full_load(facts: ModuleFacts, call: StateCall) -> Iterator[str]:
    if call.strict is not None and not is_literal(call.strict, True):
        yield "missing keys are no longer returned, and raise with `use_orig_params=False`"
    if (use := _used_again(facts, call)) is not None:
        yield use


def _used_again(facts: ModuleFacts, call: StateCall) -> str | None:
    """The dict that a full load writes into [25b], if it is used afterwards."""
    name = call.state
    while isinstance(name, ast.Subscript):
        name = name.value
    if call.state is None or not isinstance(name, ast.Name):
        return None
    text, home = ast.unparse(call.state), facts.scope(name).lookup(name.id)
    behind = [use for use in (home.uses.get(name.id, ()) if home else ()) if place_of(use) > place_of(name)]
    read = [use for use in behind if isinstance(use.ctx, ast.Load) and ast.unparse(_whole(facts, use)) == text]
    return f"loading changes `{text}`, which line {read[0].lineno} reads again" if read else None


def _whole(facts: ModuleFacts, use: ast.Name) -> ast.expr:
    """A name with the subscripts behind it: `files["model"]` for `files`."""
    node: ast.expr = use
    while isinstance(parent := facts.structure.parents[node], ast.Subscript) and parent.value is node:
        node = parent
    return node
