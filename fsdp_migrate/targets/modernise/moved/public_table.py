"""Names of FSDP, torch.distributed and torch.amp that have another place or another name: rows for `moves`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.targets.modernise.moved.rows import ROOT, Move, module_row, rows

FLAT_PARAMETER = "FSDP303"
FLATTENED = "FSDP304"
DEFAULT_POLICY = "FSDP402"
POLICY_BASE = "FSDP403"
EXEC_ORDER = "FSDP404"
OR_POLICY = "FSDP406"
AUTOCAST = "FSDP801"
SCALER = "FSDP802"
CUSTOM = "FSDP803"
GATHERS = "FSDP811"
OPERATIONS = "FSDP812"
RANKS = "FSDP813"
MULTIGPU = "FSDP814"
APPLY_CHECKPOINTING = "FSDP832"
CHECKPOINT_MODULE = "FSDP833"

_CLASS_MODULE, _WRAP = "fsdp.fully_sharded_data_parallel", "fsdp.wrap"
_CHECKPOINT = "algorithms._checkpoint"
# What both enumerations have.
_MEMBERS = frozenset({"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"})


def public() -> Iterator[Move]:
    """All of the rows."""
    yield from _flat_parameter()
    yield from _wrap_policies()
    yield from _mixed_precision()
    yield from _collectives()
    yield from _checkpoint_wrapper()


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
