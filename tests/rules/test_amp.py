from __future__ import annotations

from fsdp_migrate.config import Settings
from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.torch_api import TorchRange
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

AUTOCAST = "FSDP801"
SCALER = "FSDP802"
CUSTOM = "FSDP803"


def test_positions_of_autocast_become_keywords() -> None:
    check_transformed(
        """\
        import torch

        with torch.cuda.amp.autocast(use_amp, torch.bfloat16, False):
            step()
        """,
        """\
        import torch

        with torch.amp.autocast("cuda", enabled=use_amp, dtype=torch.bfloat16, cache_enabled=False):
            step()
        """,
        AUTOCAST,
    )


def test_the_device_of_cpu_autocast_has_another_dtype() -> None:
    check_transformed(
        """\
        import torch as th

        with th.cpu.amp.autocast(enabled=flag):
            step()
        """,
        """\
        import torch as th

        with th.amp.autocast("cpu", dtype=th.bfloat16, enabled=flag, cache_enabled=True):
            step()
        """,
        AUTOCAST,
    )


def test_an_imported_name_goes_with_its_last_use() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import GradScaler, autocast

        def step(x):
            with autocast(dtype=torch.float16):
                return x
        """,
        """\
        import torch
        from torch.cuda.amp import GradScaler

        def step(x):
            with torch.amp.autocast("cuda", dtype=torch.float16, cache_enabled=True):
                return x
        """,
        AUTOCAST,
    )


def test_a_module_alias_is_followed() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda import amp

        with amp.autocast(False):
            step()
        """,
        """\
        import torch

        with torch.amp.autocast("cuda", dtype=torch.float16, enabled=False, cache_enabled=True):
            step()
        """,
        AUTOCAST,
    )


def test_unknown_options_and_other_uses_of_autocast_are_manual() -> None:
    check_manual("import torch\ntorch.cuda.amp.autocast(*a)\n", AUTOCAST, "passes `*args`")
    check_manual("import torch\nregion = torch.cuda.amp.autocast\n", AUTOCAST, "only a call can be rewritten")
    check_manual("from torch.cuda.amp import autocast\n\nwith autocast():\n    pass\n", AUTOCAST, "not imported here")


def test_a_fallback_of_another_kind_makes_autocast_manual() -> None:
    check_manual(
        """\
        import torch
        try:
            from torch.cuda.amp import autocast
        except ImportError:
            from apex.amp import autocast

        with autocast():
            pass
        """,
        AUTOCAST,
        "may be something else",
    )


def test_a_fallback_that_tries_the_new_name_first_is_left_alone() -> None:
    check_noop(
        """\
        import torch
        try:
            from torch.amp import GradScaler
            scaler = GradScaler("cuda")
        except ImportError:
            from torch.cuda.amp import GradScaler
            scaler = GradScaler()
        """,
        SCALER,
    )


def test_the_old_arm_of_a_version_check_is_left_alone() -> None:
    check_noop(
        """\
        import torch
        from packaging.version import Version

        if Version(torch.__version__) >= Version("2.4"):
            scaler = torch.amp.GradScaler("cuda")
        else:
            scaler = torch.cuda.amp.GradScaler()
        """,
        SCALER,
    )


def test_names_of_other_libraries_are_left_alone() -> None:
    check_noop("from apex.amp import autocast\n\nwith autocast():\n    pass\n", AUTOCAST)
    check_noop("from mylib import GradScaler\n\nscaler = GradScaler()\n", SCALER)


def test_a_scaler_keeps_all_its_arguments_behind_the_device() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import GradScaler

        scaler = GradScaler(
            1024.0,
            *rest,
            enabled=True,  # always
            **options,
        )
        """,
        """\
        import torch

        scaler = torch.amp.GradScaler(
            "cuda",
            1024.0,
            *rest,
            enabled=True,  # always
            **options,
        )
        """,
        SCALER,
        torch=">=2.3",
    )


def test_type_tests_and_annotations_follow_the_scaler() -> None:
    check_transformed(
        """\
        import torch
        from typing import Optional
        from torch.cuda.amp import GradScaler

        def step(scaler: Optional[GradScaler], loss) -> GradScaler | None:
            if isinstance(scaler, (GradScaler, Other)):
                loss = scaler.scale(loss)
            own: GradScaler = scaler
        """,
        """\
        import torch
        from typing import Optional

        def step(scaler: Optional[torch.amp.GradScaler], loss) -> torch.amp.GradScaler | None:
            if isinstance(scaler, (torch.amp.GradScaler, Other)):
                loss = scaler.scale(loss)
            own: torch.amp.GradScaler = scaler
        """,
        SCALER,
        torch=">=2.3",
    )


def test_a_scaler_passed_on_or_derived_from_is_manual() -> None:
    check_manual("import torch\nbuild(torch.cuda.amp.GradScaler)\n", SCALER, "only a call", torch=">=2.3")
    check_manual("import torch\nclass S(torch.cuda.amp.GradScaler): ...\n", SCALER, "`super().__init__`", torch=">=2.3")


def test_below_the_floor_nothing_is_rewritten() -> None:
    check_manual("import torch\ntorch.cuda.amp.GradScaler()\n", SCALER, "needs torch>=2.3")
    check_manual("import torch\n@torch.cuda.amp.custom_fwd\ndef f(c): ...\n", CUSTOM, "needs torch>=2.4", torch=">=2.3")


def test_before_the_deprecation_the_old_names_are_a_hint() -> None:
    (found,) = lint("import torch\ntorch.cuda.amp.autocast()\n", AUTOCAST, ">=2.1,<2.4")
    assert found.severity is Severity.HINT
    (found,) = lint("import torch\ntorch.cuda.amp.autocast()\n", AUTOCAST, ">=2.1,<2.5")
    assert found.severity is Severity.DEPRECATED


def test_decorators_of_autograd_functions_become_calls() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import custom_bwd, custom_fwd

        class F(torch.autograd.Function):
            @staticmethod
            @custom_fwd(cast_inputs=torch.float16)
            def forward(ctx, x):
                return x

            @staticmethod
            @custom_bwd
            def backward(ctx, g):
                return g

        plain = custom_fwd(forward)
        """,
        """\
        import torch

        class F(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
            def forward(ctx, x):
                return x

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, g):
                return g

        plain = torch.amp.custom_fwd(forward, device_type="cuda")
        """,
        CUSTOM,
        torch=">=2.4",
    )


def test_a_name_in_an_f_string_is_manual() -> None:
    check_manual('import torch\nprint(f"{torch.cuda.amp.GradScaler()}")\n', SCALER, "f-string", torch=">=2.3")


def _by_default(text: str) -> list[str]:
    return [finding.code for finding in lint_bytes(text.encode(), "m.py", Settings(TorchRange.parse(">=2.4"))).findings]


def test_by_default_only_files_with_torch_distributed_or_fsdp_are_looked_at() -> None:
    region = "with torch.cuda.amp.autocast():\n    pass\n"
    assert _by_default(f"import torch\n# distributed\n{region}") == []
    assert _by_default(f"import torch\nfrom torch import distributed as dist\n{region}") == [AUTOCAST]
    assert _by_default(f"import torch\ntorch.distributed.barrier()\n{region}") == [AUTOCAST]
    assert _by_default(f"import torch\nfrom fairscale.nn import FullyShardedDataParallel\n{region}") == [AUTOCAST]
    assert _by_default(f"import torch\nfrom torch.nn.parallel import DistributedDataParallel\n{region}") == []
