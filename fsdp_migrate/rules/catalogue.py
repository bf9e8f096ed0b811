"""What changed around FSDP between torch 1.11 and 2.15, change by change, and the rules that tell it.

The list is that of the project's catalogue of API changes, without optimizer state, state-dict configs and
FlatParameter (FSDP1xx to 3xx). A test holds that every rule of the other families stands here, and that each code
finds a program with the change. `fsdp-migrate rules --output-format json` prints it as `changes`.
"""

from __future__ import annotations

from fsdp_migrate.records import NamedTuple


class TorchChange(NamedTuple):
    """A change of torch with the codes that report it; `beyond` says what of it, or that all of it, is not reported."""

    entry: str
    title: str
    codes: tuple[str, ...] = ()
    beyond: str | None = None


def _change(entry: str, title: str, codes: str = "", beyond: str | None = None) -> TorchChange:
    return TorchChange(entry, title, tuple(f"FSDP{code}" for code in codes.split()), beyond)


_PRIVATE_NAMES = (
    _change("priv-prefix-strings", "prefixes of wrapped names, and the flat parameter's name", "606 604"),
    _change("priv-clean-tensor-name", "`clean_tensor_name` in another module", "604"),
    _change("priv-checkpoint-prefix", "the dot at the end of `_CHECKPOINT_PREFIX`", "608 604"),
    _change("priv-module-attr", "`_fpw_module`, and `module` behind `module`", "606"),
    _change("priv-handles", "`_handles` and `_module_handles` of several, where there is one", "611 604"),
    _change("priv-lazy-init", "`_lazy_init` as a method", "611"),
    _change("priv-training-state", "`TrainingState_` with five states", "604"),
    _change("priv-param-names", "functions from parameters to names", "604"),
    _change("priv-methods-removed-2.0", "private methods that became functions", "611 600"),
    _change("priv-utils-modules", "`fsdp.utils`, `fsdp._utils`, `shard_utils`, `_symbolic_trace`", "604 600"),
    _change("pkg-nightly", "`torch.distributed._fsdp`, the package before torch 1.11", "615"),
    _change("priv-sync-module-states", "functions behind `sync_module_states`", "604"),
)
_WRAPPING = (
    _change("wrap-policy-param-name", "`unwrapped_params` of wrap policies", "401"),
    _change("wrap-default-policy", "`default_auto_wrap_policy`", "402"),
    _change("wrap-fsdp-auto-wrap-policy-arg", "the argument `fsdp_auto_wrap_policy`", "501"),
    _change("wrap-recursive-wrap", "more arguments of `_recursive_wrap`, and its second place", "405 604"),
    _change("wrap-or-policy", "`_or_policy`: its place, its keyword, and what it can call", "406 407 401"),
    _change("wrap-policy-classes", "`_FSDPPolicy`, `.policy`, and policies that are too new", "403 600"),
    _change("wrap-param-exec-order", "`ParamExecOrderWrapPolicy`", "404 604"),
    _change(
        "wrap-transformer-to-module",
        "`transformer_auto_wrap_policy` beside `ModuleWrapPolicy`",
        beyond="neither is deprecated, and they treat frozen parameters and mixed precision differently",
    ),
    _change("wrap-batchnorm", "batch norm wrapped by itself", "604"),
    _change("wrap-ConfigAutoWrap", "`ConfigAutoWrap` became private", "604"),
)
_CONSTRUCTOR = (
    _change("ctor-positional", "the order of positions in torch 1.11", "504"),
    _change(
        "ctor-ignored-parameters",
        "the argument `ignored_parameters`",
        "502",
        beyond="`ignored_modules` works on every release",
    ),
    _change("ctor-backward-prefetch-default", "the default of `backward_prefetch`", "507"),
    _change("ctor-limit-all-gathers-default", "the default of `limit_all_gathers`", "507"),
    _change(
        "ctor-no-sharding",
        "`NO_SHARD` is deprecated",
        "506",
        beyond="a world of one rank, for which torch chooses NO_SHARD itself, is not in the source",
    ),
    _change("ctor-hsdp-sync", "where states come from under HYBRID_SHARD", "508"),
    _change(
        "ctor-device-id",
        "errors about devices of the module, and a mesh beside a process group",
        "500",
        beyond="on which device a module lies shows when the program runs, and torch's error says what to pass",
    ),
    _change(
        "ctor-frozen-params",
        "frozen and trained parameters in one group",
        beyond="which parameters are frozen shows when the program runs; torch's error names them",
    ),
    _change(
        "ctor-nested",
        "wrapping what is wrapped already, and scalar parameters",
        beyond="an error on every release, at the call that has to change",
    ),
    _change(
        "mp-fields",
        "fields of `MixedPrecision` that are too new",
        "500",
        beyond="whether inputs of inner modules are cast depends on the run; no default changed since torch 2.0",
    ),
)
_METHODS = (
    _change("clip-grad-norm", "the norm over all ranks, and the result of clipping", "503 509 600"),
    _change(
        "summon-full-params",
        "`summon_full_params` takes the module, and `with_grads`",
        "505 500",
        beyond="combinations of its arguments that no release accepts raise where they are written",
    ),
    _change("comm-hook", "`register_comm_hook`, and `_communication_hook`", "600 611"),
    _change(
        "named-parameters-names",
        "names of parameters inside and outside of `summon_full_params`",
        "606",
        beyond="names without a prefix that is gone are the same on every release",
    ),
    _change("no-sync", "`no_sync` is not in torch 1.11", "600"),
    _change(
        "fsdp1-status",
        "FSDP1 beside FSDP2",
        beyond="no release deprecates `FullyShardedDataParallel`",
    ),
)
_FSDP2 = (
    _change("fs2-reduce-dtype", "what a policy without `reduce_dtype` means", "907"),
    _change("fs2-import", "FSDP2 in `_composable.fsdp`", "602 600"),
    _change("fs2-FSDP-class", "the class `FSDP` of FSDP2, which is `FSDPModule`", "602"),
    _change("fs2-setter-recurse", "`recurse` by position", "511"),
    _change("fs2-divide-factor", "`set_reduce_scatter_divide_factor`", "510"),
    _change("fs2-reshard-default", "an explicit `reshard_after_forward` of the root", "512"),
    _change("fs2-args-by-version", "arguments and setters that are too new, handles built by hand", "500 600 513"),
    _change("fs2-param-group-private", "one parameter group, or several", "513"),
    _change(
        "fs2-from-fsdp1",
        "from FSDP1 to FSDP2",
        beyond="not a change of torch that breaks or deprecates anything: both are there in every release since 2.3",
    ),
)
_COMPOSABLE = (
    _change("comp-fully-shard", "`_composable.fully_shard` over FSDP1", "607"),
    _change("comp-replicate", "arguments of `replicate`", "500 600"),
    _change("comp-checkpoint", "`use_reentrant` of the composable `checkpoint`", "835"),
)
_TENSOR = (
    _change("dt-tensor-move", "`torch.distributed._tensor`", "601 600"),
    _change("dt-partial", "`_Partial`, and a `ReduceOp` for `Partial`", "601 612"),
    _change(
        "dt-device-mesh",
        "the place of `DeviceMesh`, its methods and the registry of meshes",
        "603 600 500 610 614",
        beyond="slices by several names, which torch 2.3 refuses, are subscripts of what may be anything",
    ),
    _change("dt-distribute-module-fns", "callbacks with and without the module", "613"),
    _change("tp-styles", "styles and helpers of tensor parallelism", "609 600 500"),
)
_CHECKPOINTING = (
    _change(
        "dsd-full-load-missing-keys", "missing keys of a full state dict, which `set_model_state_dict` lets pass", "711"
    ),
    _change("dcp-async-stager", "the stager of `async_save`, which copies no ShardedTensor", "716"),
    _change("dcp-adamw-groups", "a key that AdamW's parameter groups have since", "715"),
    _change("dcp-shard-checkpoint", "`_shard.checkpoint`, the first place of distributed checkpointing", "605"),
    _change("dcp-save-load", "`save_state_dict` and `load_state_dict`, and the storage by position", "703 702 718"),
    _change(
        "dcp-state-dict-parts",
        "`submodules` and state dicts by modules, and `dedup_replicated_tensors`",
        "520",
        beyond="a dict whose keys are modules of another name cannot be told from one with names",
    ),
    _change("dcp-storage-abstract", "abstract methods of storage classes", "701"),
    _change("ckptw-module", "the module `_checkpoint_wrapper`", "833"),
    _change("ckptw-offload", "`offload_to_cpu` of `checkpoint_wrapper`", "831"),
    _change("ckptw-impl-default", "the default implementation, and the one that warned", "836"),
    _change("ckptw-apply", "`apply_activation_checkpointing_wrapper`", "832"),
    _change("ckpt-use-reentrant", "`checkpoint` without `use_reentrant`", "834"),
)
_COLLECTIVES = (
    _change("c10d-gather-base", "`_all_gather_base` and `_reduce_scatter_base`", "811"),
    _change(
        "c10d-into-tensor",
        "`all_gather_into_tensor`, deprecated in 2.13 and 2.14 only, and functional collectives",
        "610",
        beyond="where 2.15 is supported, `all_gather_into_tensor` is right and stays",
    ),
    _change("c10d-reduce-op", "`reduce_op`", "812"),
    _change("c10d-get-rank", "ranks in groups", "813"),
    _change(
        "c10d-misc",
        "collectives over several GPUs, timeouts, devices of groups, arguments of DistributedDataParallel",
        "814 815 610 600 520",
    ),
)
_LAUNCH = (
    _change(
        "launch-module",
        "`torch.distributed.launch`",
        "822",
        beyond="shell scripts are not read",
    ),
    _change("launch-local-rank", "`--local_rank` as an option", "821"),
)
_PRECISION = (
    _change("amp-autocast", "`torch.cuda.amp.autocast`", "801"),
    _change("amp-gradscaler", "`torch.cuda.amp.GradScaler`", "802"),
    _change("amp-custom-fwd", "`torch.cuda.amp.custom_fwd` and `_cast`", "803 610"),
    _change("amp-autocast-state", "`torch.get_autocast_gpu_dtype` and its kin", "805"),
    _change("amp-sharded-scaler", "positions of `ShardedGradScaler`, and its base class", "804 802"),
)
_LOADING = (
    _change("load-weights-only", "the default of `weights_only`", "841"),
    _change("optim-scripted", "functional optimizers for TorchScript", "610 600"),
)
CHANGES: tuple[TorchChange, ...] = (
    *_PRIVATE_NAMES,
    *_WRAPPING,
    *_CONSTRUCTOR,
    *_METHODS,
    *_FSDP2,
    *_COMPOSABLE,
    *_TENSOR,
    *_CHECKPOINTING,
    *_COLLECTIVES,
    *_LAUNCH,
    *_PRECISION,
    *_LOADING,
)
