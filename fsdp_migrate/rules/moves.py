"""Names of torch that have another place or another name: a row each, without any release.

Since when the old name is gone or deprecated and since when the new one is there, the API data knows; a test holds
the rows against it. `entry` is the entry of the catalogue of API changes that a row comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from packaging.version import Version

from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import exists, kind, last

_ROOT = "torch.distributed"

DTENSOR = "FSDP601"
FULLY_SHARD = "FSDP602"
DEVICE_MESH = "FSDP603"
PRIVATE = "FSDP604"
SHARD_PACKAGES = "FSDP605"
COMPOSABLE = "FSDP607"
TENSOR_PARALLEL = "FSDP609"


@dataclass(frozen=True)
class Move:
    """Where something is now.

    `new` is None for what is gone without a successor. A `whole` module takes along all that is in it and has no row of
    its own. `trap` says what to do where the new name is not the old one under another name; then nothing is
    rewritten. `only` are the attributes of the old name that the new one has with the same meaning; a `statement` is a
    function whose result changed, which does not matter where it is called as a statement. `placement` marks the class
    whose argument changed with its name. `meanwhile` is a place that came before the new one and is still there.
    """

    code: str
    entry: str
    old: str
    new: str | None
    whole: bool = False
    trap: str | None = None
    only: frozenset[str] | None = None
    statement: bool = False
    placement: bool = False
    meanwhile: str | None = None


@dataclass(frozen=True)
class Moved:
    """A written name that a row speaks of: `old` is the part of it that the row changes, into `new`."""

    move: Move
    old: str
    new: str | None

    @property
    def renames(self) -> bool:
        """Whether the thing has another name, not only another module."""
        return self.new is not None and self.old.rpartition(".")[2] != self.new.rpartition(".")[2]


def _rows(
    code: str, entry: str, old: str, new: str | None, names: str, trap: str | None = None, statement: bool = False
) -> Iterator[Move]:
    """Rows for names of a module; `a>b` is called `b` in the new one."""
    for name in names.split():
        before, _, after = name.partition(">")
        target = None if new is None else f"{_ROOT}.{new}.{after or before}"
        yield Move(code, entry, f"{_ROOT}.{old}.{before}", target, trap=trap, statement=statement)


def _module(code: str, entry: str, old: str, new: str) -> Move:
    return Move(code, entry, f"{_ROOT}.{old}", f"{_ROOT}.{new}", whole=True)


def _dtensor() -> Iterator[Move]:
    code, entry = DTENSOR, "dt-tensor-move"
    yield _module(code, entry, "_tensor", "tensor")
    yield _module(code, entry, "_tensor.api", "tensor._api")
    yield from _rows(code, entry, "_tensor.api", "tensor", "DTensor distribute_tensor distribute_module")
    yield from _rows(code, entry, "_tensor.api", "tensor", "Placement Shard Replicate")
    yield _module(code, entry, "_tensor.placement_types", "tensor.placement_types")
    yield from _rows(code, entry, "_tensor.placement_types", "tensor", "Placement Shard Replicate Partial")
    yield from _rows(code, entry, "_tensor.placement_types", "tensor._dtensor_spec", "DTensorSpec TensorMeta")
    yield _module(code, entry, "_tensor.debug.comm_mode", "tensor.debug._comm_mode")
    yield from _rows(code, entry, "_tensor.debug.comm_mode", "tensor.debug", "CommDebugMode")
    yield _module(code, entry, "_tensor.experimental.attention", "tensor.experimental._attention")
    yield _module(code, entry, "_tensor.experimental.tp_transform", "tensor.experimental._tp_transform")
    yield from _rows(code, entry, "_tensor", "tensor._api", "_dtensor_init_helper")
    for module in ("dispatch", "op_schema", "ops", "random", "redistribute", "sharding_prop", "tp_conv"):
        yield _module(code, entry, f"_tensor.{module}", f"tensor._{module}")
    yield from _rows(
        code,
        entry,
        "_tensor._utils",
        "tensor._utils",
        "compute_local_shape>compute_local_shape_and_global_offset",
        trap="the new function returns the shape and the offset: take the first of the two",
    )
    partial = f"{_ROOT}.tensor.Partial"
    yield Move(code, "dt-partial", f"{_ROOT}._tensor.placement_types._Partial", partial, placement=True)


def _context_parallel() -> Iterator[Move]:
    yield _module(
        DTENSOR, "dt-tensor-move", "tensor.experimental._attention", "tensor.experimental._context_parallel._attention"
    )


def _fully_shard() -> Iterator[Move]:
    code, entry = FULLY_SHARD, "fs2-import"
    public = "fully_shard FSDPModule register_fsdp_forward_method MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy"
    inner = "fully_shard FSDPModule register_fsdp_forward_method UnshardHandle MixedPrecisionPolicy OffloadPolicy"
    yield _module(code, entry, "_composable.fsdp", "fsdp")
    yield from _rows(code, entry, "_composable.fsdp", "fsdp", public)
    yield from _rows(code, entry, "_composable.fsdp.fully_shard", "fsdp", inner)
    for old in ("_composable.fsdp", "_composable.fsdp.fully_shard"):
        new, meanwhile = f"{_ROOT}.fsdp.FSDPModule", f"{_ROOT}._composable.fsdp.FSDPModule"
        yield Move(code, "fs2-FSDP-class", f"{_ROOT}.{old}.FSDP", new, meanwhile=meanwhile)
    yield from _rows(
        code,
        entry,
        "_composable.fsdp.fully_shard",
        "fsdp._fully_shard._fully_shard",
        "cls_to_fsdp_cls _assert_all_fsdp_modules",
    )
    for module in ("api", "collectives", "common", "init", "param", "param_group", "state"):
        yield _module(code, entry, f"_composable.fsdp._fsdp_{module}", f"fsdp._fully_shard._fsdp_{module}")
    policies = "MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy"
    yield from _rows(code, entry, "_composable.fsdp._fsdp_api", "fsdp", policies)


def _device_mesh() -> Iterator[Move]:
    code, entry = DEVICE_MESH, "dt-device-mesh"
    yield _module(code, entry, "_tensor.device_mesh", "device_mesh")
    yield from _rows(code, entry, "_tensor", "device_mesh", "DeviceMesh init_device_mesh")
    yield from _rows(code, entry, "_tensor.api", "device_mesh", "DeviceMesh")
    trap = "its methods have changed too: `get_root_mesh` took the place of `get_parent_mesh` in torch 2.5"
    for old in ("_tensor.device_mesh", "_tensor"):
        yield from _rows(code, entry, old, "device_mesh", "mesh_resources>_mesh_resources", trap=trap)


def _private() -> Iterator[Move]:
    code, fsdp, common = PRIVATE, "fsdp.fully_sharded_data_parallel", "fsdp._common_utils"
    yield from _rows(code, "priv-clean-tensor-name", fsdp, common, "clean_tensor_name")
    yield from _rows(code, "priv-param-names", fsdp, common, "_get_param_to_unflat_param_names>_get_param_to_fqns")
    yield from _rows(code, "priv-param-names", fsdp, fsdp, "_get_param_to_param_name>_get_param_to_fqn")
    yield from _rows(code, "priv-param-names", fsdp, fsdp, "_get_param_name_to_param>_get_fqn_to_param")
    yield Move(
        code,
        "priv-training-state",
        f"{_ROOT}.{fsdp}.TrainingState_",
        f"{_ROOT}.{common}.TrainingState",
        only=frozenset({"IDLE", "SUMMON_FULL_PARAMS"}),
        trap="`FORWARD` and the two `BACKWARD_` states became one, `FORWARD_BACKWARD`; those of a handle are in "
        "`HandleTrainingState`",
    )
    yield from _rows(
        code, "priv-prefix-strings", fsdp, None, "FPW_MODULE", trap="modules are wrapped once only: drop it from names"
    )
    yield from _rows(
        code, "priv-prefix-strings", fsdp, None, "FlattenParamsWrapper", trap="there is no such wrapper any more"
    )
    checkpoint_wrapper = "algorithms._checkpoint.checkpoint_wrapper"
    yield from _rows(
        code,
        "priv-checkpoint-prefix",
        fsdp,
        checkpoint_wrapper,
        "_CHECKPOINT_PREFIX",
        trap="since torch 2.0 it ends with a dot",
    )
    yield from _rows(
        code,
        "sd-1x-private-methods",
        fsdp,
        None,
        "_state_dict_type_to_config",
        trap="choose the config class by the `StateDictType` yourself",
    )
    yield from _rows(code, "priv-utils-modules", fsdp, "fsdp._init_utils", "_TORCHDISTX_AVAIL")
    yield from _rows(
        code,
        "priv-utils-modules",
        fsdp,
        "fsdp._init_utils",
        "_PARAM_BROADCAST_BUCKET_SIZE>PARAM_BROADCAST_BUCKET_SIZE",
    )
    yield from _utils()
    yield from _shard_utils()
    yield from _initialisation()


def _utils() -> Iterator[Move]:
    code, entry = PRIVATE, "priv-utils-modules"
    for old in ("fsdp._utils", "fsdp.utils", "fsdp.fully_sharded_data_parallel"):
        yield from _rows(code, entry, old, "utils", "p_assert>_p_assert")
        yield from _rows(
            code,
            entry,
            old,
            "utils",
            "_alloc_storage _free_storage",
            trap="the new function returns nothing, the old one whether it did something",
            statement=True,
        )
        yield from _rows(
            code,
            entry,
            old,
            "fsdp._common_utils",
            "_override_batchnorm_mixed_precision>_override_module_mixed_precision",
            trap="the new function also takes the module classes",
        )
        yield from _rows(
            code,
            entry,
            old,
            None,
            "_contains_batchnorm",
            trap="write `any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in module.modules())`",
        )
    for old in ("fsdp._utils", "fsdp.utils"):
        yield from _rows(code, entry, old, "utils", "_apply_to_tensors")
        yield from _rows(
            code,
            entry,
            old,
            "fsdp._common_utils",
            "_apply_to_modules",
            trap="the new function takes other arguments",
        )
    yield from _rows(code, entry, "fsdp._utils", "fsdp._common_utils", "_no_dispatch_record_stream")
    yield from _rows(
        code, entry, "fsdp._utils", "fsdp._flat_param", "_same_storage", trap="torch 2.1 and 2.2 have no such function"
    )


def _shard_utils() -> Iterator[Move]:
    code, entry = PRIVATE, "priv-utils-modules"
    other = "the new function takes other arguments"
    for old in ("fsdp.shard_utils", "fsdp._shard_utils", "checkpoint._state_dict_utils"):
        yield from _rows(code, entry, old, "_state_dict_utils", "_gather_state_dict", trap=other)
    yield from _rows(
        code, entry, "checkpoint._state_dict_utils", "_state_dict_utils", "_offload_state_dict_to_cpu", trap=other
    )


def _initialisation() -> Iterator[Move]:
    code = PRIVATE
    other = "the new function takes other arguments"
    yield from _rows(
        code,
        "priv-sync-module-states",
        "fsdp._init_utils",
        "fsdp._init_utils",
        "_sync_module_states>_sync_module_params_and_buffers "
        "_check_params_for_sync_module_states>_check_module_states_for_sync_module_states",
        trap=other,
    )
    yield from _rows(
        code,
        "priv-handles",
        "fsdp._common_utils",
        "fsdp._common_utils",
        "_module_handles>_module_handle",
        trap="the new function returns one handle or None, no list",
    )


def _shard_packages() -> Iterator[Move]:
    code = SHARD_PACKAGES
    yield _module(code, "dcp-shard-checkpoint", "_shard.checkpoint", "checkpoint")
    yield _module(code, "dcp-shard-checkpoint", "_sharded_tensor", "_shard.sharded_tensor")
    yield _module(code, "dcp-shard-checkpoint", "_sharding_spec", "_shard.sharding_spec")


def _composable() -> Iterator[Move]:
    trap = (
        "torch.distributed.fsdp.fully_shard is another function, which takes no policy and shards the one module: call "
        "it for each layer, or use `FullyShardedDataParallel(module, auto_wrap_policy=policy, use_orig_params=True)`"
    )
    for old in ("_composable.fully_shard", "_composable.fully_shard.fully_shard"):
        yield Move(COMPOSABLE, "comp-fully-shard", f"{_ROOT}.{old}", None, whole=True, trap=trap)


def _tensor_parallel() -> Iterator[Move]:
    code, entry = TENSOR_PARALLEL, "tp-styles"
    layouts = "give `ColwiseParallel` and `RowwiseParallel` the layouts, `input_layouts=` and `output_layouts=`"
    functions = (
        "make_input_replicate_1d make_input_reshard_replicate make_input_shard_1d make_input_shard_1d_last_dim "
        "make_output_replicate_1d make_output_reshard_tensor make_output_shard_1d make_output_tensor "
        "make_sharded_output_tensor"
    )
    for old in ("tensor.parallel", "tensor.parallel.style"):
        yield from _rows(code, entry, old, None, functions, trap=layouts)
        yield from _rows(
            code,
            entry,
            old,
            None,
            "PairwiseParallel",
            trap="give each linear layer a `ColwiseParallel` or a `RowwiseParallel` in the plan",
        )
    yield from _rows(
        code,
        entry,
        "tensor.parallel.fsdp",
        None,
        "enable_2d_with_fsdp",
        trap="drop the call and build FSDP with the data-parallel part of the mesh, `device_mesh=mesh['dp']`",
    )
    as_they_are = "DDP takes modules with DTensor parameters as they are"
    yield from _rows(code, entry, "tensor.parallel.ddp", None, "pre_dp_module_transform", trap=as_they_are)
    attention = "parallelize the projections of the attention by a plan for `parallelize_module`"
    for old in ("tensor.parallel", "tensor.parallel.multihead_attention_tp"):
        yield from _rows(code, entry, old, None, "TensorParallelMultiheadAttention", trap=attention)


MOVES: tuple[Move, ...] = (
    *_dtensor(),
    *_context_parallel(),
    *_fully_shard(),
    *_device_mesh(),
    *_private(),
    *_shard_packages(),
    *_composable(),
    *_tensor_parallel(),
)
_BY_OLD = {move.old: move for move in MOVES}


def moved(path: str, newest: Version) -> Moved | None:
    """What the table says of a written name, None when nothing; the longest row that fits counts.

    A name of a whole module follows it if the `newest` release has it in the new place.
    """
    prefix = path
    while prefix and prefix not in _BY_OLD:
        prefix = prefix.rpartition(".")[0]
    if not prefix:
        return None
    move = _BY_OLD[prefix]
    if prefix == path or not move.whole or move.new is None:
        return Moved(move, prefix, move.new)
    inside = _named_by_modules(prefix, path[len(prefix) + 1 :].split("."))
    if not exists(f"{move.new}{inside}", newest):
        return None
    return Moved(move, f"{prefix}{inside}", f"{move.new}{inside}")


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
    """What a file has to write to concern the rule `code`."""
    return frozenset(move.old for move in MOVES if move.code == code)
