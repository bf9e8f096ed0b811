from __future__ import annotations

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP804"
IMPORT = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n"


def test_positions_get_the_names_they_had_before_torch_2_3() -> None:
    check_transformed(
        f"{IMPORT}scaler = ShardedGradScaler(2.0**16, 0.5, 2.0, 100, True, group)\n",
        f"{IMPORT}scaler = ShardedGradScaler(init_scale=2.0**16, backoff_factor=0.5, growth_factor=2.0, "
        "growth_interval=100, enabled=True, process_group=group)\n",
        CODE,
    )


def test_a_module_chain_and_further_options_are_kept() -> None:
    check_transformed(
        """\
        import torch.distributed.fsdp.sharded_grad_scaler as sgs
        scaler = sgs.ShardedGradScaler(args.init_scale, enabled=True, **options)
        """,
        """\
        import torch.distributed.fsdp.sharded_grad_scaler as sgs
        scaler = sgs.ShardedGradScaler(init_scale=args.init_scale, enabled=True, **options)
        """,
        CODE,
    )


def test_what_may_be_either_is_manual() -> None:
    check_manual(f"{IMPORT}ShardedGradScaler(x)\n", CODE, "may be a scale or a device")
    check_manual(f"{IMPORT}ShardedGradScaler(*x)\n", CODE, "`*args`")


def test_a_device_in_front_breaks_older_releases_only() -> None:
    check_manual(f'{IMPORT}ShardedGradScaler("cuda")\n', CODE, "pass no device before")
    check_noop(f'{IMPORT}ShardedGradScaler("cuda")\nShardedGradScaler(args.device)\n', CODE, ">=2.3")


def test_what_happens_depends_on_the_positions_and_the_range() -> None:
    def severity(arguments: str, torch: str) -> Severity:
        (found,) = lint(f"{IMPORT}ShardedGradScaler({arguments})\n", CODE, torch)
        return found.severity

    assert severity("1024.0", ">=2.1") is Severity.CHANGES
    assert severity("1024.0", ">=2.5") is Severity.CHANGES
    assert severity("1024.0, 0.5, 2.0", ">=2.1") is Severity.BREAKS
    assert severity("1024.0", ">=2.1,<2.3") is Severity.HINT


def test_a_subclass_hands_on_to_the_same_constructor() -> None:
    own = "class Scaler(ShardedGradScaler):\n    def __init__(self, scale):\n        super().__init__({}scale, {}0.5)\n"
    names = "init_scale=", "backoff_factor="
    use = "Scaler(2.0, g)\n"
    check_transformed(f"{IMPORT}{own.format('', '')}{use}", f"{IMPORT}{own.format(*names)}{use}", CODE)
    bare = "class Scaler(ShardedGradScaler):\n    pass\nScaler({}2.0)\n"
    check_transformed(IMPORT + bare.format(""), IMPORT + bare.format(names[0]), CODE)
    check_noop(f"{IMPORT}class Scaler(Mixin, ShardedGradScaler):\n    pass\nScaler(2.0)\n", CODE)
    check_noop(f"{IMPORT}class Other(Base):\n    def f(self):\n        super().__init__(2.0)\nOther(2.0)\n", CODE)
