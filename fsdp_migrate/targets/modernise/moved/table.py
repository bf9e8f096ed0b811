"""Names of torch that have another place or another name: a row each, without any release.

Since when the old name is gone or deprecated and since when the new one is there, the API data knows; a test holds
the rows against it. `entry` is the entry of the catalogue of API changes that a row comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.targets.modernise.moved.private_table import private
from fsdp_migrate.targets.modernise.moved.public_table import FLAT_PARAMETER, public
from fsdp_migrate.targets.modernise.moved.rows import (
    COMPOSABLE,
    DEVICE_MESH,
    DTENSOR,
    FULLY_SHARD,
    ROOT,
    SHARD_PACKAGES,
    TENSOR_PARALLEL,
    Move,
    module_row,
    rows,
)
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import SAME_MODULES, exists, kind, last


class Moved(NamedTuple):
    """A written name that a row speaks of: `old` is the part of it that the row changes, into `new`."""

    move: Move
    old: str
    new: str | None
    meanwhile: str | None = None

    @property
    def renames(self) -> bool:
        """Whether the thing has another name, not only another module."""
        return self.new is not None and self.old.rpartition(".")[2] != self.new.rpartition(".")[2]


def _dtensor() -> Iterator[Move]:
    code, entry = DTENSOR, "dt-tensor-move"
    yield module_row(code, entry, "_tensor", "tensor")
    yield module_row(code, entry, "_tensor.api", "tensor._api")
    yield from rows(code, entry, "_tensor.api", "tensor", "DTensor distribute_tensor distribute_module")
    yield from rows(code, entry, "_tensor.api", "tensor", "Placement Shard Replicate")
    yield module_row(code, entry, "_tensor.placement_types", "tensor.placement_types")
    yield from rows(code, entry, "_tensor.placement_types", "tensor", "Placement Shard Replicate Partial")
    yield from rows(code, entry, "_tensor.placement_types", "tensor._dtensor_spec", "DTensorSpec TensorMeta")
    yield module_row(code, entry, "_tensor.debug.comm_mode", "tensor.debug._comm_mode")
    yield from rows(code, entry, "_tensor.debug.comm_mode", "tensor.debug", "CommDebugMode")
    yield module_row(code, entry, "_tensor.experimental.attention", "tensor.experimental._attention")
    yield module_row(code, entry, "_tensor.experimental.tp_transform", "tensor.experimental._tp_transform")
    yield from rows(code, entry, "_tensor", "tensor._api", "_dtensor_init_helper")
    for module in ("dispatch", "op_schema", "ops", "random", "redistribute", "sharding_prop", "tp_conv"):
        yield module_row(code, entry, f"_tensor.{module}", f"tensor._{module}")
    yield from rows(
        code,
        entry,
        "_tensor._utils",
        "tensor._utils",
        "compute_local_shape>compute_local_shape_and_global_offset",
        trap="the new function returns shape and offset: use the first of the two",
    )
    partial = f"{ROOT}.tensor.Partial"
    yield Move(
        code,
        "dt-partial",
        f"{ROOT}._tensor.placement_types._Partial",
        partial,
        trap='it takes the name of the reduction, such as "sum", not a `ReduceOp`',
        change="reduction",
    )


def _context_parallel() -> Iterator[Move]:
    yield module_row(
        DTENSOR, "dt-tensor-move", "tensor.experimental._attention", "tensor.experimental._context_parallel._attention"
    )


def _fully_shard() -> Iterator[Move]:
    code, entry = FULLY_SHARD, "fs2-import"
    public = "fully_shard FSDPModule register_fsdp_forward_method MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy"
    inner = "fully_shard FSDPModule register_fsdp_forward_method UnshardHandle MixedPrecisionPolicy OffloadPolicy"
    yield module_row(code, entry, "_composable.fsdp", "fsdp")
    yield from rows(code, entry, "_composable.fsdp", "fsdp", public)
    yield from rows(code, entry, "_composable.fsdp.fully_shard", "fsdp", inner)
    for old in ("_composable.fsdp", "_composable.fsdp.fully_shard"):
        new, meanwhile = f"{ROOT}.fsdp.FSDPModule", f"{ROOT}._composable.fsdp.FSDPModule"
        yield Move(code, "fs2-FSDP-class", f"{ROOT}.{old}.FSDP", new, meanwhile=meanwhile)
    yield from rows(
        code,
        entry,
        "_composable.fsdp.fully_shard",
        "fsdp._fully_shard._fully_shard",
        "cls_to_fsdp_cls _assert_all_fsdp_modules",
    )
    for module in ("api", "collectives", "common", "init", "param", "param_group", "state"):
        yield module_row(code, entry, f"_composable.fsdp._fsdp_{module}", f"fsdp._fully_shard._fsdp_{module}")
    policies = "MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy"
    yield from rows(code, entry, "_composable.fsdp._fsdp_api", "fsdp", policies)


def _device_mesh() -> Iterator[Move]:
    code, entry = DEVICE_MESH, "dt-device-mesh"
    yield module_row(code, entry, "_tensor.device_mesh", "device_mesh")
    yield from rows(code, entry, "_tensor", "device_mesh", "DeviceMesh init_device_mesh")
    yield from rows(code, entry, "_tensor.api", "device_mesh", "DeviceMesh")
    trap = "its methods have changed, too: `get_parent_mesh` was replaced by `get_root_mesh` in torch 2.5"
    for old in ("_tensor.device_mesh", "_tensor"):
        yield from rows(code, entry, old, "device_mesh", "mesh_resources>_mesh_resources", trap=trap)


def _shard_packages() -> Iterator[Move]:
    code = SHARD_PACKAGES
    for old, new in SAME_MODULES.items():
        yield Move(code, "dcp-shard-checkpoint", old, new, whole=True, same=True)
    yield module_row(code, "dcp-shard-checkpoint", "_sharded_tensor", "_shard.sharded_tensor")
    yield module_row(code, "dcp-shard-checkpoint", "_sharding_spec", "_shard.sharding_spec")


def _composable() -> Iterator[Move]:
    trap = (
        "torch.distributed.fsdp.fully_shard is another function: it has no policy and shards one module. "
        "Call it for each layer, or use `FullyShardedDataParallel(module, auto_wrap_policy=policy, "
        "use_orig_params=True)`"
    )
    for old in ("_composable.fully_shard", "_composable.fully_shard.fully_shard"):
        yield Move(COMPOSABLE, "comp-fully-shard", f"{ROOT}.{old}", None, whole=True, trap=trap)


def _tensor_parallel() -> Iterator[Move]:
    code, entry = TENSOR_PARALLEL, "tp-styles"
    layouts = "pass the layouts to `ColwiseParallel` and `RowwiseParallel`: `input_layouts=` and `output_layouts=`"
    functions = (
        "make_input_replicate_1d make_input_reshard_replicate make_input_shard_1d make_input_shard_1d_last_dim "
        "make_output_replicate_1d make_output_reshard_tensor make_output_shard_1d make_output_tensor "
        "make_sharded_output_tensor"
    )
    for old in ("tensor.parallel", "tensor.parallel.style"):
        yield from rows(code, entry, old, None, functions, trap=layouts)
        yield from rows(
            code,
            entry,
            old,
            None,
            "PairwiseParallel",
            trap="give each linear layer a `ColwiseParallel` or a `RowwiseParallel` in the plan",
        )
    yield from rows(
        code,
        entry,
        "tensor.parallel.fsdp",
        None,
        "enable_2d_with_fsdp",
        trap="remove the call, and build FSDP with the data-parallel part of the mesh: `device_mesh=mesh['dp']`",
    )
    as_they_are = "remove the call: DDP accepts modules with DTensor parameters"
    yield from rows(code, entry, "tensor.parallel.ddp", None, "pre_dp_module_transform", trap=as_they_are)
    attention = "parallelize the projections of the attention with a plan for `parallelize_module`"
    for old in ("tensor.parallel", "tensor.parallel.multihead_attention_tp"):
        yield from rows(code, entry, old, None, "TensorParallelMultiheadAttention", trap=attention)


MOVES: tuple[Move, ...] = (
    *_dtensor(),
    *_context_parallel(),
    *_fully_shard(),
    *_device_mesh(),
    *private(),
    *public(),
    *_shard_packages(),
    *_composable(),
    *_tensor_parallel(),
)
_BY_OLD = {move.old: move for move in MOVES}
# Rules that let a new place fall back on the old one; elsewhere older releases are left to FSDP600.
_BOTH_WAYS = (FLAT_PARAMETER, FULLY_SHARD)
_BY_NEW: dict[str, list[Move]] = {}
for _move in MOVES:
    # What warns where it is used is there on every release.
    if _move.new is not None and _move.code in _BOTH_WAYS and not (_move.adapts or _move.when_used):
        _BY_NEW.setdefault(_move.new, []).append(_move)


def moved(path: str, newest: Version) -> Moved | None:
    """What the table says of a written name, None when nothing; the longest row that fits counts.

    A name of a whole module follows it if the `newest` release has it in the new place, or in one in between.
    """
    prefix = path
    while prefix and prefix not in _BY_OLD:
        prefix = prefix.rpartition(".")[0]
    if not prefix:
        return None
    move = _BY_OLD[prefix]
    if prefix == path or not move.whole or move.new is None:
        return Moved(move, prefix, move.new, move.meanwhile)
    inside = _named_by_modules(prefix, path[len(prefix) + 1 :].split("."))
    new, *between = (f"{place}{inside}" for place in (move.new, move.meanwhile) if place is not None)
    if not any(exists(place, newest) for place in (new, *between)):
        return None
    return Moved(move, f"{prefix}{inside}", new, between[0] if between else None)


def older_places(path: str) -> Iterator[tuple[Move, str]]:
    """Where a name was before it came to `path`, with the rows that say so; it is the same thing there."""
    module, _, name = path.rpartition(".")
    for move in _BY_NEW.get(module, ()):
        if move.whole and f"{move.old}.{name}" not in _BY_OLD:
            yield move, f"{move.old}.{name}"
    for move in _BY_NEW.get(path, ()):
        yield move, move.old


def _named_by_modules(module: str, names: Sequence[str]) -> str:
    """The part of `names`, with dots, up to the first that is no module: its attributes do not move by themselves."""
    inside = ""
    for name in names:
        inside += f".{name}"
        if not is_module(f"{module}{inside}"):
            break
    return inside


@cache
def is_module(path: str) -> bool:
    """Whether a name is a module, in the newest release that has it."""
    return kind(path, last(path) or RELEASES[-1]) == "module"


def old_names(code: str) -> frozenset[str]:
    """The old names of the rule `code`."""
    return frozenset(move.old for move in MOVES if move.code == code)


def all_names(code: str) -> frozenset[str]:
    """What a file has to write to concern the rule `code`: an old name, or a new one that older releases lack.

    Public modules alone are no such names, they are written everywhere.
    """
    moves = (move for together in _BY_NEW.values() for move in together if move.code == code)
    return old_names(code).union(move.new for move in moves if move.new and (not move.whole or "._" in move.new))


def last_parts(code: str) -> tuple[str, ...]:
    """The old names of the rule `code` without what stands in front of them."""
    return tuple(sorted({name.rpartition(".")[2] for name in old_names(code)}))
