"""Names of torch that have another place or another name: a row each, without any release.

The API data knows since when the old name is gone or deprecated, and since when the new one exists; a test holds the
rows against it. `entry` is the entry of the catalogue of API changes that a row comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdp_migrate.targets.modernise.moved.rows import (
    APPLY_CHECKPOINTING,
    AUTOCAST,
    CHECKPOINT_MODULE,
    COMPOSABLE,
    CUSTOM,
    DEFAULT_POLICY,
    DEVICE_MESH,
    DTENSOR,
    EXEC_ORDER,
    FLAT_PARAMETER,
    FLATTENED,
    FULLY_SHARD,
    GATHERS,
    MULTIGPU,
    OPERATIONS,
    OR_POLICY,
    POLICY_BASE,
    PRIVATE,
    RANKS,
    ROOT,
    SCALER,
    SHARD_PACKAGES,
    TENSOR_PARALLEL,
    Move,
    module_row,
    rows,
)
from fsdp_migrate.torch_api.data import SAME_MODULES

_rows = partial(rows, PRIVATE)
_CLASS_MODULE, _COMMON = "fsdp.fully_sharded_data_parallel", "fsdp._common_utils"
_OTHER_ARGUMENTS = "the new function has other parameters"
_WRAP = "fsdp.wrap"
_CHECKPOINT = "algorithms._checkpoint"
# What both enumerations have.
_MEMBERS = frozenset({"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"})


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


def _names_and_states() -> Iterator[Move]:
    yield from _rows("priv-clean-tensor-name", _CLASS_MODULE, _COMMON, "clean_tensor_name")
    yield from _rows("priv-param-names", _CLASS_MODULE, _COMMON, "_get_param_to_unflat_param_names>_get_param_to_fqns")
    yield from _rows("priv-param-names", _CLASS_MODULE, _CLASS_MODULE, "_get_param_to_param_name>_get_param_to_fqn")
    yield from _rows("priv-param-names", _CLASS_MODULE, _CLASS_MODULE, "_get_param_name_to_param>_get_fqn_to_param")
    yield Move(
        PRIVATE,
        "priv-training-state",
        f"{ROOT}.{_CLASS_MODULE}.TrainingState_",
        f"{ROOT}.{_COMMON}.TrainingState",
        only=frozenset({"IDLE", "SUMMON_FULL_PARAMS"}),
        trap=(
            "`FORWARD` and the two `BACKWARD_` states became `FORWARD_BACKWARD`; the states of a handle are in "
            "`HandleTrainingState`"
        ),
    )
    yield from _rows(
        "sd-1x-private-methods",
        _CLASS_MODULE,
        None,
        "_state_dict_type_to_config",
        trap="choose the config class by the `StateDictType`",
    )


def _prefixes_and_constants() -> Iterator[Move]:
    yield from _rows(
        "priv-prefix-strings",
        _CLASS_MODULE,
        None,
        "FPW_MODULE",
        trap="remove it from names: modules have one wrapper since torch 2.0",
    )
    yield from _rows(
        "priv-prefix-strings",
        _CLASS_MODULE,
        None,
        "FlattenParamsWrapper",
        trap=("torch 2.0 removed this wrapper: remove the use"),
    )
    checkpoint_wrapper = "algorithms._checkpoint.checkpoint_wrapper"
    yield from _rows(
        "priv-checkpoint-prefix",
        _CLASS_MODULE,
        checkpoint_wrapper,
        "_CHECKPOINT_PREFIX",
        trap="since torch 2.0 it ends with a dot",
    )
    yield from _rows("priv-utils-modules", _CLASS_MODULE, "fsdp._init_utils", "_TORCHDISTX_AVAIL")
    yield from _rows(
        "priv-utils-modules",
        _CLASS_MODULE,
        "fsdp._init_utils",
        "_PARAM_BROADCAST_BUCKET_SIZE>PARAM_BROADCAST_BUCKET_SIZE",
    )


def _utils() -> Iterator[Move]:
    entry = "priv-utils-modules"
    for old in ("fsdp._utils", "fsdp.utils", _CLASS_MODULE):
        yield from _rows(entry, old, "utils", "p_assert>_p_assert")
        yield from _rows(
            entry,
            old,
            "utils",
            "_alloc_storage _free_storage",
            trap="the new function returns nothing; the old one returned whether it changed something",
            change="statement",
        )
        yield from _rows(
            entry,
            old,
            _COMMON,
            "_override_batchnorm_mixed_precision>_override_module_mixed_precision",
            trap="the new function also takes the module classes",
        )
        yield from _rows(
            entry,
            old,
            None,
            "_contains_batchnorm",
            trap="write `any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in module.modules())`",
        )
    for old in ("fsdp._utils", "fsdp.utils"):
        yield from _rows(entry, old, "utils", "_apply_to_tensors")
        yield from _rows(entry, old, _COMMON, "_apply_to_modules", trap=_OTHER_ARGUMENTS)
    yield from _rows(entry, "fsdp._utils", _COMMON, "_no_dispatch_record_stream")
    yield from _rows(
        entry, "fsdp._utils", "fsdp._flat_param", "_same_storage", trap="torch 2.1 and 2.2 have no such function"
    )


def _shard_utils() -> Iterator[Move]:
    entry = "priv-utils-modules"
    for old in ("fsdp.shard_utils", "fsdp._shard_utils", "checkpoint._state_dict_utils"):
        yield from _rows(entry, old, "_state_dict_utils", "_gather_state_dict", trap=_OTHER_ARGUMENTS)
    yield from _rows(
        entry, "checkpoint._state_dict_utils", "_state_dict_utils", "_offload_state_dict_to_cpu", trap=_OTHER_ARGUMENTS
    )


def _wrapping() -> Iterator[Move]:
    wrap = "fsdp.wrap"
    batchnorm = "_wrap_batchnorm_individually>_wrap_module_cls_individually"
    for module in (_CLASS_MODULE, wrap):
        yield from _rows(
            "wrap-batchnorm",
            module,
            wrap,
            batchnorm,
            trap="the new function also takes the module classes, `MixedPrecision._module_classes_to_ignore`",
        )
    yield from _rows("wrap-recursive-wrap", _CLASS_MODULE, wrap, "_recursive_wrap")
    yield from _rows(
        "wrap-ConfigAutoWrap", wrap, wrap, "ConfigAutoWrap>_ConfigAutoWrap", trap="`enable_wrap` and `wrap` use it"
    )
    yield from _rows(
        "wrap-param-exec-order",
        "fsdp._symbolic_trace",
        None,
        "TracingConfig",
        trap="`ParamExecOrderWrapPolicy`, its only user, was removed as well: remove both",
    )
    yield from _rows(
        "priv-utils-modules",
        "fsdp._utils",
        None,
        "no_dispatch",
        trap="import it from torch.utils._mode_utils, which has it since 1.13",
    )


def _initialisation() -> Iterator[Move]:
    yield from _rows(
        "priv-sync-module-states",
        "fsdp._init_utils",
        "fsdp._init_utils",
        "_sync_module_states>_sync_module_params_and_buffers "
        "_check_params_for_sync_module_states>_check_module_states_for_sync_module_states",
        trap=_OTHER_ARGUMENTS,
    )
    yield from _rows(
        "priv-handles",
        _COMMON,
        _COMMON,
        "_module_handles>_module_handle",
        trap="the new function returns one handle or None, not a list",
    )


def _flat_parameter() -> Iterator[Move]:
    code, entry = FLAT_PARAMETER, "flat-import"
    for module in ("flatten_params_wrapper", "flat_param", "_flat_param", "_optim_utils"):
        yield from rows(code, entry, f"fsdp.{module}", "fsdp", "FlatParameter", ignores_arguments=True)
    yield module_row(code, entry, "fsdp.flat_param", "fsdp._flat_param")
    oldest = module_row(code, entry, "fsdp.flatten_params_wrapper", "fsdp._flat_param", meanwhile="fsdp.flat_param")
    yield oldest._replace(ignores_arguments=True)
    code, entry = FLATTENED, "flat-fsdp-flattened-attr"
    yield from rows(
        code, entry, "fsdp._utils", "fsdp._common_utils", "_is_fsdp_flattened _set_fsdp_flattened FSDP_FLATTENED"
    )
    yield from rows(code, entry, _CLASS_MODULE, "fsdp._common_utils", "_is_fsdp_flattened")


def _wrap_policies() -> Iterator[Move]:
    old, new = f"{ROOT}.{_WRAP}.default_auto_wrap_policy", f"{ROOT}.{_WRAP}.size_based_auto_wrap_policy"
    yield Move(DEFAULT_POLICY, "wrap-default-policy", old, new, ignores_arguments=True)
    for module in (_WRAP, _CLASS_MODULE):
        yield from rows(
            POLICY_BASE,
            "wrap-policy-classes",
            module,
            _WRAP,
            "_FSDPPolicy>_Policy",
            trap="a subclass defines `_run_policy` instead of `policy`: change it by hand",
            change="policy_base",
        )
    trap = "torch has no replacement; its `init_policy` alone wraps other groups of modules"
    for module in ("fsdp", _WRAP, _CLASS_MODULE):
        yield from rows(EXEC_ORDER, "wrap-param-exec-order", module, None, "ParamExecOrderWrapPolicy", trap=trap)
    yield from rows(EXEC_ORDER, "wrap-param-exec-order", _CLASS_MODULE, None, "TracingConfig", trap=trap)
    old, new = f"{ROOT}.{_CLASS_MODULE}._or_policy", f"{ROOT}.{_WRAP}._or_policy"
    yield Move(OR_POLICY, "wrap-or-policy", old, new, ignores_arguments=True)


def _mixed_precision() -> Iterator[Move]:
    # The submodules are where the names are defined; old files take them from there.
    for device in ("cuda", "cpu"):
        for module in (f"torch.{device}.amp", f"torch.{device}.amp.autocast_mode"):
            yield from rows(
                AUTOCAST, "amp-autocast", module, "torch.amp", "autocast", change="autocast", when_used=True
            )
        for module in (f"torch.{device}.amp", f"torch.{device}.amp.grad_scaler"):
            yield from rows(
                SCALER, "amp-gradscaler", module, "torch.amp", "GradScaler", change="scaler", when_used=True
            )
    for module in ("torch.cuda.amp", "torch.cuda.amp.autocast_mode"):
        yield from rows(
            CUSTOM, "amp-custom-fwd", module, "torch.amp", "custom_fwd custom_bwd", change="custom", when_used=True
        )


def _collectives() -> Iterator[Move]:
    c10d = f"{ROOT}.distributed_c10d"
    for module in (ROOT, c10d):
        yield from rows(
            GATHERS,
            "c10d-gather-base",
            module,
            module,
            "_all_gather_base>all_gather_into_tensor _reduce_scatter_base>reduce_scatter_tensor",
            when_used=True,
        )
        yield Move(
            OPERATIONS,
            "c10d-reduce-op",
            f"{module}.reduce_op",
            f"{module}.ReduceOp",
            only=_MEMBERS,
            trap="only members such as `reduce_op.SUM` can be rewritten",
            when_used=True,
        )
        for name in ("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter"):
            trap = f"run one process per GPU, and call `{name}` with one tensor"
            yield from rows(MULTIGPU, "c10d-misc", module, None, f"{name}_multigpu", trap=trap)
    for kind, other in (("global", "group"), ("group", "global")):
        yield Move(
            RANKS,
            "c10d-get-rank",
            f"{c10d}._get_{kind}_rank",
            f"{c10d}.get_{kind}_rank",
            keywords=(("rank", f"{other}_rank"),),
            when_used=True,
        )


def _checkpoint_wrapper() -> Iterator[Move]:
    module = f"{ROOT}.{_CHECKPOINT}.checkpoint_wrapper"
    yield Move(
        APPLY_CHECKPOINTING,
        "ckptw-apply",
        f"{module}.apply_activation_checkpointing_wrapper",
        f"{module}.apply_activation_checkpointing",
        had=("1.12", "1.13"),
    )
    yield module_row(
        CHECKPOINT_MODULE, "ckptw-module", f"{_CHECKPOINT}._checkpoint_wrapper", f"{_CHECKPOINT}.checkpoint_wrapper"
    )


MOVES: tuple[Move, ...] = (
    *_dtensor(),
    *_context_parallel(),
    *_fully_shard(),
    *_device_mesh(),
    *_names_and_states(),
    *_prefixes_and_constants(),
    *_utils(),
    *_shard_utils(),
    *_initialisation(),
    *_wrapping(),
    *_flat_parameter(),
    *_wrap_policies(),
    *_mixed_precision(),
    *_collectives(),
    *_checkpoint_wrapper(),
    *_shard_packages(),
    *_composable(),
    *_tensor_parallel(),
)
