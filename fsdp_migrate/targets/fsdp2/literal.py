"""What the arguments of FSDP1 are as arguments of `fully_shard`, where the program writes them out."""

from __future__ import annotations

import ast
from collections.abc import Container
from dataclasses import dataclass, field

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_literal
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.project_code import Code
from fsdp_migrate.targets.fsdp2.arguments import Given
from fsdp_migrate.targets.fsdp2.batch_norm import may_have_batch_norm
from fsdp_migrate.targets.fsdp2.devices import Device, read_device
from fsdp_migrate.targets.fsdp2.policies import AtRunTime, Test, followed, read_policy, symbol
from fsdp_migrate.targets.fsdp2.precision import Precision, read_precision

_KEEPS_PARAMETERS = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
_ON_ONE_MESH = ("FULL_SHARD", "SHARD_GRAD_OP")
_ON_MESHES = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
# How files write that modules get no values yet.
_META = ('"meta"', "'meta'", "init_empty_weights", "deferred_init")
_INIT_MESH = "torch.distributed.device_mesh.init_device_mesh"


@dataclass
class Literal:
    """A construction that is written out.

    `every` are keywords of every call, as texts; `test` says which modules are sharded below the root. `kept` are the
    expressions that the new text has too.
    """

    every: list[str] = field(default_factory=list)
    mesh: ast.expr | None = None
    on_cpu: bool = False
    offloads: ast.expr | None = None
    test: Test | None = None
    precision: Precision | None = None
    normalises: bool = False  # batch normalisation has a precision of its own
    kept: list[ast.expr] = field(default_factory=list)


def read_literal(facts: ModuleFacts, call: ast.Call, given: Given, users: Container[ast.Call], code: Code) -> Literal:
    """Read what is written; `users` are the constructions that are read so.

    Raises:
        AtRunTime: something is only known at run time, or takes more than arguments.
        Impossible: FSDP2 cannot do that.
    """
    values, found = given.values, Literal()
    for name in ("process_group", "ignored_modules", "ignored_states", "param_init_fn"):
        if name in values and not is_literal(values[name], None):
            raise AtRunTime(f"`{name}`")
    if not is_literal(values.get("sync_module_states", ast.Constant(False)), False):
        raise AtRunTime("`sync_module_states`")
    if _may_be_on_meta(facts):
        raise AtRunTime("whether the model is on the meta device")
    device = read_device(facts, values.get("device_id"), call, code)
    if device is Device.OTHER:
        raise AtRunTime(f"whether `{ast.unparse(values['device_id'])}` is the current device")
    _read_strategy(facts, call, given, found)
    found.on_cpu = device is Device.CPU and found.mesh is None
    _read_offload(facts, call, given, found)
    if "auto_wrap_policy" in values:
        found.test = read_policy(facts, values["auto_wrap_policy"], call)
    precision = values.get("mixed_precision")
    found.precision = read_precision(facts, precision, users)
    found.kept += [] if found.test is None else found.test.names
    if found.test is not None and found.precision is not None and may_have_batch_norm(facts, given.module, code):
        found.normalises = True
    if found.precision is not None and found.precision.name is not None and precision is not None:
        found.kept.append(precision)
    return found


def _read_strategy(facts: ModuleFacts, call: ast.Call, given: Given, found: Literal) -> None:
    strategy, mesh = given.values.get("sharding_strategy"), given.values.get("device_mesh")
    name = "FULL_SHARD"
    if strategy is not None and not is_literal(strategy, None):
        known = symbol(facts, followed(facts, strategy, call))
        if known is None or not known.startswith("ShardingStrategy."):
            raise AtRunTime(f"the strategy `{ast.unparse(strategy)}`")
        name = known.partition(".")[2]
    if mesh is not None and not is_literal(mesh, None):
        if not pure(mesh):
            raise AtRunTime(f"the mesh `{ast.unparse(mesh)}`")
        found.mesh = mesh
        found.kept.append(mesh)
        found.every.append(f"mesh={facts.source.segment(mesh)}")
    if name not in (_ON_ONE_MESH if found.mesh is None else (*_ON_ONE_MESH, *_ON_MESHES)):
        raise AtRunTime(f"which ranks `{name}` is for")
    if name in _ON_MESHES and found.mesh is not None and not _has_names(facts, found.mesh):
        raise AtRunTime(f"whether the dimensions of `{ast.unparse(found.mesh)}` have names")
    if name in _KEEPS_PARAMETERS:
        found.every.append("reshard_after_forward=False")


def _read_offload(facts: ModuleFacts, call: ast.Call, given: Given, found: Literal) -> None:
    offload = given.values.get("cpu_offload")
    if offload is None or is_literal(offload, None):
        return
    made = followed(facts, offload, call)
    if not isinstance(made, ast.Call) or symbol(facts, made.func) != "CPUOffload":
        raise AtRunTime(f"`cpu_offload={ast.unparse(offload)}`")
    try:
        value = next((one.value for one in bind(made, ("offload_params",), 0).values()), None)
    except BindingError:
        raise AtRunTime(f"`cpu_offload={ast.unparse(offload)}`") from None
    if value is None or is_literal(value, False):
        return
    if not is_literal(value, True):
        raise AtRunTime(f"`cpu_offload={ast.unparse(offload)}`")
    found.offloads = offload


def _may_be_on_meta(facts: ModuleFacts) -> bool:
    """Whether the program makes modules without values, which FSDP1 initialises."""
    if any(word.encode() in facts.source.data for word in _META):
        return True
    return facts.project is not None and any(facts.project.is_in_program(word) for word in _META)


def _has_names(facts: ModuleFacts, mesh: ast.expr) -> bool:
    """Whether a mesh is visibly made with names for its dimensions."""
    values = facts.names.definitions(mesh) if isinstance(mesh, ast.Name) else [mesh]
    made = [one for one in values if isinstance(one, ast.Call) and facts.names.qualified(one.func) == _INIT_MESH]
    named = [one for one in made if any(keyword.arg == "mesh_dim_names" for keyword in one.keywords)]
    return bool(values) and len(named) == len(values)
