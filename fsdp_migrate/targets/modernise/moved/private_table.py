"""Private names of `torch.distributed.fsdp` that have another place or another name: rows for `moves`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdp_migrate.targets.modernise.moved.rows import PRIVATE, ROOT, Move, rows

_rows = partial(rows, PRIVATE)
_CLASS_MODULE, _COMMON = "fsdp.fully_sharded_data_parallel", "fsdp._common_utils"
_OTHER_ARGUMENTS = "the new function has other parameters"


def private() -> Iterator[Move]:
    """All of the rows."""
    yield from _names_and_states()
    yield from _prefixes_and_constants()
    yield from _utils()
    yield from _shard_utils()
    yield from _initialisation()
    yield from _wrapping()


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
