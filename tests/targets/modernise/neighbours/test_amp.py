from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
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

        with th.amp.autocast("cpu", dtype=th.bfloat16, enabled=flag):
            step()
        """,
        AUTOCAST,
    )


def test_an_imported_name_comes_from_the_new_module() -> None:
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
        from torch.amp import autocast
        from torch.cuda.amp import GradScaler

        def step(x):
            with autocast("cuda", dtype=torch.float16):
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

        with torch.amp.autocast("cuda", enabled=False):
            step()
        """,
        AUTOCAST,
    )


def test_unknown_options_and_other_uses_of_autocast_are_manual() -> None:
    check_manual("import torch\ntorch.cuda.amp.autocast(*a)\n", AUTOCAST, "passes `*args`")
    check_manual("import torch\nregion = torch.cuda.amp.autocast\n", AUTOCAST, "change all uses together")
    exported = '__all__ = ["autocast"]\n\nwith autocast():\n    pass\n'
    check_manual(f"from torch.cuda.amp import autocast\n{exported}", AUTOCAST, "not imported here")


def test_autocast_of_another_device_as_a_value_keeps_no_call() -> None:
    text = "import torch\nregion = torch.cuda.amp.autocast\nwith torch.{}:\n    pass\n"
    after = text.format('amp.autocast("cpu", dtype=torch.bfloat16)')
    check_transformed(text.format("cpu.amp.autocast()"), after, AUTOCAST)


@pytest.mark.parametrize("other", ["torch.cuda.amp.GradScaler()", "torch.cuda.amp.grad_scaler.GradScaler()"])
def test_all_spellings_of_a_class_that_is_used_as_a_value_stay(other: str) -> None:
    text = f"import torch\nscaler = torch.cuda.amp.GradScaler\nother = {other}\n"
    check_manual(text, SCALER, "change all uses together", torch=">=2.3")


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
        "may also be another object",
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
        from torch.amp import GradScaler

        scaler = GradScaler(
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
        from torch.cuda import amp

        def step(scaler: Optional[amp.GradScaler], loss) -> amp.GradScaler | None:
            if isinstance(scaler, (amp.GradScaler, Other)):
                loss = scaler.scale(loss)
            own: amp.GradScaler = scaler
        """,
        """\
        import torch

        def step(scaler: Optional[torch.amp.GradScaler], loss) -> torch.amp.GradScaler | None:
            if isinstance(scaler, (torch.amp.GradScaler, Other)):
                loss = scaler.scale(loss)
            own: torch.amp.GradScaler = scaler
        """,
        SCALER,
        torch=">=2.3",
    )


def test_an_import_for_types_changes_its_module_only() -> None:
    use = "\n\ndef step(scaler: Optional[GradScaler], loss: 'list[GradScaler]'):\n    isinstance(scaler, GradScaler)\n"
    check_transformed(
        f"from torch.cuda.amp.grad_scaler import GradScaler{use}",
        f"from torch.amp import GradScaler{use}",
        SCALER,
        torch=">=2.3",
    )


def test_torch_is_imported_where_only_the_default_dtype_needs_it() -> None:
    given = "from torch.{}amp import autocast\n\nwith autocast({}dtype=kind{}):\n    pass\n"
    check_transformed(given.format("cuda.", "", ""), given.format("", '"cuda", ', ""), AUTOCAST)
    check_transformed(
        """\
        def train():
            from torch.cpu.amp import autocast as region

            with region(flag):
                pass
        """,
        """\
        def train():
            import torch
            from torch.amp import autocast as region

            with region("cpu", dtype=torch.bfloat16, enabled=flag):
                pass
        """,
        AUTOCAST,
    )
    other = "from torch.cuda.amp import autocast\n\ndef f(torch):\n    with autocast():\n        pass\n"
    check_manual(other, AUTOCAST, "not imported here")


def test_names_of_one_import_move_together_and_keep_its_layout() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import (
            GradScaler as Scaler,
            autocast,
        )  # mixed precision

        scaler = Scaler()
        with autocast(dtype=torch.float16, cache_enabled=False):
            pass
        """,
        """\
        import torch
        from torch.amp import (
            GradScaler as Scaler,
            autocast,
        )  # mixed precision

        scaler = Scaler("cuda")
        with autocast("cuda", dtype=torch.float16, cache_enabled=False):
            pass
        """,
        "FSDP80",
        torch=">=2.4",
    )


def test_an_import_under_a_condition_stays_there() -> None:
    text = """\
        try:
            from torch.{0}amp import GradScaler
            HAS_AMP = True
        except ImportError:
            HAS_AMP = False

        scaler = GradScaler({1}) if HAS_AMP else None
        """
    check_transformed(text.format("cuda.", ""), text.format("", '"cuda"'), SCALER, torch=">=2.3")


def test_a_subclass_follows_an_import_unless_its_base_may_get_positions() -> None:
    body = '    """Doc."""\n    kept = 1\n    def step(self, o):\n        pass\n'
    text = f"from torch.{{}}amp import GradScaler\n\nclass S(GradScaler):\n{body}"
    own = "\n    def __init__(self, **options):\n        super().__init__(**options)\n"
    for rest in ("\ns = S(init_scale=2.0)\n", own + "\ns = S(2.0)\n"):
        check_transformed(text.format("cuda.") + rest, text.format("") + rest, SCALER, torch=">=2.3")
    for rest in ("", "\ns = S(2.0)\n", "\nclass T(S):\n    pass\n", own.replace("(**", "(*")):
        check_manual(text.format("cuda.") + rest, SCALER, "`super().__init__`", torch=">=2.3")


def test_a_comment_at_one_of_several_names_goes_with_it() -> None:
    check_transformed(
        """\
        import torch
        from torch.cuda.amp import (
            GradScaler,  # scales
            autocast,  # mixed
        )

        scaler = GradScaler()
        """,
        """\
        import torch
        from torch.amp import GradScaler  # scales
        from torch.cuda.amp import (
            autocast,  # mixed
        )

        scaler = GradScaler("cuda")
        """,
        SCALER,
        torch=">=2.3",
    )


def test_a_scaler_passed_on_or_derived_from_is_manual() -> None:
    check_manual("import torch\nbuild(torch.cuda.amp.GradScaler)\n", SCALER, "change all uses together", torch=">=2.3")
    check_manual("import torch\nclass S(torch.cuda.amp.GradScaler): ...\n", SCALER, "`super().__init__`", torch=">=2.3")


def test_below_the_floor_nothing_is_rewritten() -> None:
    check_manual("import torch\ntorch.cuda.amp.GradScaler()\n", SCALER, "so that the import can try both places")
    text = "import torch\n@torch.cuda.amp.custom_fwd\ndef f(c): ...\n"
    check_manual(text, CUSTOM, "so that the import can try both places", torch=">=2.3")


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
        from torch.amp import custom_bwd, custom_fwd

        class F(torch.autograd.Function):
            @staticmethod
            @custom_fwd(device_type="cuda", cast_inputs=torch.float16)
            def forward(ctx, x):
                return x

            @staticmethod
            @custom_bwd(device_type="cuda")
            def backward(ctx, g):
                return g

        plain = custom_fwd(forward, device_type="cuda")
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


def test_a_test_that_tells_a_scaler_from_the_sharded_one_is_not_given_the_new_class_unasked() -> None:
    head = (
        "import torch\nfrom torch.cuda.amp import GradScaler\n"
        "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n\n"
        "def kind(scaler: GradScaler):\n    return isinstance(scaler, {})\n"
    )
    for tested, grade in (
        ("GradScaler", Applicability.UNSAFE),
        ("torch.cuda.amp.GradScaler", Applicability.UNSAFE),
        ("(GradScaler, ShardedGradScaler)", Applicability.SAFE),
        ("int", Applicability.SAFE),
    ):
        found = lint(head.format(tested), "FSDP802", ">=2.3")
        assert grade in {one.applicability for one in found}, tested
    (known,) = lint(head.format("GradScaler"), "FSDP802", ">=2.1")
    assert known.reason == "since torch 2.3 a ShardedGradScaler is an instance of the new class, but not of the old one"


@pytest.mark.parametrize("names", ["(\n    autocast,  # mixed\n)", "(  # mixed\n    autocast,\n)", "autocast  # mixed"])
def test_a_comment_at_the_only_name_of_an_import_moves_along(names: str) -> None:
    text = "import torch\nimport torch.distributed\nfrom torch.{} import {}\n\nwith autocast({}):\n    pass\n"
    after = text.format("amp", names, '"cuda", dtype=torch.float16')
    check_transformed(text.format("cuda.amp", names, ""), after, "FSDP801", torch=">=2.4")


@pytest.mark.parametrize("caught", ["Exception", "AttributeError", "BaseException"])
def test_a_handler_of_errors_is_no_reason_to_keep_what_only_warns(caught: str) -> None:
    text = (
        "import torch\nimport torch.distributed\n\ndef serve(model, batch):\n    try:\n"
        f"        with {{}}:\n            model(batch)\n    except {caught}:\n        print(1)\n"
    )
    old, new = "torch.cuda.amp.autocast(dtype=t)", 'torch.amp.autocast("cuda", dtype=t)'
    check_transformed(text.format(old), text.format(new), "FSDP801", torch=">=2.4")
