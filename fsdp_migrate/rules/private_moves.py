"""Private names of `torch.distributed.fsdp` that have another place or another name: rows for `moves`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.rules.move_rows import PRIVATE, ROOT, Move, rows


def private() -> Iterator[Move]:
    """All of the rows."""
    code, fsdp, common = PRIVATE, "fsdp.fully_sharded_data_parallel", "fsdp._common_utils"
    yield from rows(code, "priv-clean-tensor-name", fsdp, common, "clean_tensor_name")
    yield from rows(code, "priv-param-names", fsdp, common, "_get_param_to_unflat_param_names>_get_param_to_fqns")
    yield from rows(code, "priv-param-names", fsdp, fsdp, "_get_param_to_param_name>_get_param_to_fqn")
    yield from rows(code, "priv-param-names", fsdp, fsdp, "_get_param_name_to_param>_get_fqn_to_param")
    yield Move(
        code,
        "priv-training-state",
        f"{ROOT}.{fsdp}.TrainingState_",
        f"{ROOT}.{common}.TrainingState",
        only=frozenset({"IDLE", "SUMMON_FULL_PARAMS"}),
        trap="`FORWARD` and the two `BACKWARD_` states became one, `FORWARD_BACKWARD`; those of a handle are in "
        "`HandleTrainingState`",
    )
    yield from rows(
        code, "priv-prefix-strings", fsdp, None, "FPW_MODULE", trap="modules are wrapped once only: drop it from names"
    )
    yield from rows(
        code, "priv-prefix-strings", fsdp, None, "FlattenParamsWrapper", trap="there is no such wrapper any more"
    )
    checkpoint_wrapper = "algorithms._checkpoint.checkpoint_wrapper"
    yield from rows(
        code,
        "priv-checkpoint-prefix",
        fsdp,
        checkpoint_wrapper,
        "_CHECKPOINT_PREFIX",
        trap="since torch 2.0 it ends with a dot",
    )
    yield from rows(
        code,
        "sd-1x-private-methods",
        fsdp,
        None,
        "_state_dict_type_to_config",
        trap="choose the config class by the `StateDictType` yourself",
    )
    yield from rows(code, "priv-utils-modules", fsdp, "fsdp._init_utils", "_TORCHDISTX_AVAIL")
    yield from rows(
        code,
        "priv-utils-modules",
        fsdp,
        "fsdp._init_utils",
        "_PARAM_BROADCAST_BUCKET_SIZE>PARAM_BROADCAST_BUCKET_SIZE",
    )
    yield from _utils()
    yield from _shard_utils()
    yield from _initialisation()
    yield from _wrapping()


def _utils() -> Iterator[Move]:
    code, entry = PRIVATE, "priv-utils-modules"
    for old in ("fsdp._utils", "fsdp.utils", "fsdp.fully_sharded_data_parallel"):
        yield from rows(code, entry, old, "utils", "p_assert>_p_assert")
        yield from rows(
            code,
            entry,
            old,
            "utils",
            "_alloc_storage _free_storage",
            trap="the new function returns nothing, the old one whether it did something",
            statement=True,
        )
        yield from rows(
            code,
            entry,
            old,
            "fsdp._common_utils",
            "_override_batchnorm_mixed_precision>_override_module_mixed_precision",
            trap="the new function also takes the module classes",
        )
        yield from rows(
            code,
            entry,
            old,
            None,
            "_contains_batchnorm",
            trap="write `any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in module.modules())`",
        )
    for old in ("fsdp._utils", "fsdp.utils"):
        yield from rows(code, entry, old, "utils", "_apply_to_tensors")
        yield from rows(
            code,
            entry,
            old,
            "fsdp._common_utils",
            "_apply_to_modules",
            trap="the new function takes other arguments",
        )
    yield from rows(code, entry, "fsdp._utils", "fsdp._common_utils", "_no_dispatch_record_stream")
    yield from rows(
        code, entry, "fsdp._utils", "fsdp._flat_param", "_same_storage", trap="torch 2.1 and 2.2 have no such function"
    )


def _shard_utils() -> Iterator[Move]:
    code, entry = PRIVATE, "priv-utils-modules"
    other = "the new function takes other arguments"
    for old in ("fsdp.shard_utils", "fsdp._shard_utils", "checkpoint._state_dict_utils"):
        yield from rows(code, entry, old, "_state_dict_utils", "_gather_state_dict", trap=other)
    yield from rows(
        code, entry, "checkpoint._state_dict_utils", "_state_dict_utils", "_offload_state_dict_to_cpu", trap=other
    )


def _wrapping() -> Iterator[Move]:
    code, old, wrap = PRIVATE, "fsdp.fully_sharded_data_parallel", "fsdp.wrap"
    batchnorm = "_wrap_batchnorm_individually>_wrap_module_cls_individually"
    for module in (old, wrap):
        yield from rows(
            code,
            "wrap-batchnorm",
            module,
            wrap,
            batchnorm,
            trap="the new function takes the module classes too; `MixedPrecision._module_classes_to_ignore` has them",
        )
    yield from rows(code, "wrap-recursive-wrap", old, wrap, "_recursive_wrap")
    yield from rows(
        code,
        "wrap-ConfigAutoWrap",
        wrap,
        wrap,
        "ConfigAutoWrap>_ConfigAutoWrap",
        trap="`enable_wrap` and `wrap` use it",
    )
    yield from rows(
        code,
        "wrap-param-exec-order",
        "fsdp._symbolic_trace",
        None,
        "TracingConfig",
        trap="`ParamExecOrderWrapPolicy`, which took it, is gone as well",
    )
    yield from rows(
        code,
        "priv-utils-modules",
        "fsdp._utils",
        None,
        "no_dispatch",
        trap="torch.utils._mode_utils has it, on every release since 1.13",
    )


def _initialisation() -> Iterator[Move]:
    code = PRIVATE
    other = "the new function takes other arguments"
    yield from rows(
        code,
        "priv-sync-module-states",
        "fsdp._init_utils",
        "fsdp._init_utils",
        "_sync_module_states>_sync_module_params_and_buffers "
        "_check_params_for_sync_module_states>_check_module_states_for_sync_module_states",
        trap=other,
    )
    yield from rows(
        code,
        "priv-handles",
        "fsdp._common_utils",
        "fsdp._common_utils",
        "_module_handles>_module_handle",
        trap="the new function returns one handle or None, no list",
    )
