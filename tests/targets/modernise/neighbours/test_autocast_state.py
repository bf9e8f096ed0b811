from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, check_transformed, lint

CODE = "FSDP805"
IMPORT = "import torch\nimport torch.distributed\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = torch.get_autocast_gpu_dtype()", 'x = torch.get_autocast_dtype("cuda")'),
        ("torch.set_autocast_gpu_dtype(torch.float16)", 'torch.set_autocast_dtype("cuda", torch.float16)'),
        ("x = torch.get_autocast_cpu_dtype()", 'x = torch.get_autocast_dtype("cpu")'),
        ("torch.set_autocast_cpu_dtype(x)", 'torch.set_autocast_dtype("cpu", x)'),
        ("x = torch.is_autocast_cpu_enabled()", 'x = torch.is_autocast_enabled("cpu")'),
        ("torch.set_autocast_cpu_enabled(x)", 'torch.set_autocast_enabled("cpu", x)'),
        (
            "torch.set_autocast_xla_enabled(\n    x,  # TPU\n)",
            'torch.set_autocast_enabled(\n    "xla",\n    x,  # TPU\n)',
        ),
        ("x = torch.get_autocast_ipu_dtype()", 'x = torch.get_autocast_dtype("ipu")'),
    ],
)
def test_the_device_becomes_an_argument(before: str, after: str) -> None:
    check_transformed(f"{IMPORT}{before}\n", f"{IMPORT}{after}\n", CODE, torch=">=2.4")
    assert [finding.applicability for finding in lint(f"{IMPORT}{before}\n", CODE)] == ["manual"]
    check_noop(f"{IMPORT}{before}\n", CODE, torch="<2.4,>=2.1")


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ("call(torch.get_autocast_gpu_dtype)", "only a call"),
        ("torch.set_autocast_gpu_dtype(*given)", "does not write out its arguments"),
        ("from torch import get_autocast_gpu_dtype as dtype\ndtype()", "import `get_autocast_dtype`"),
    ],
)
def test_other_uses_are_left_to_people(use: str, reason: str) -> None:
    check_manual(f"{IMPORT}{use}\n", CODE, reason, torch=">=2.4")


def test_code_that_serves_both_is_left_alone() -> None:
    check_noop(
        f"""{IMPORT}
if hasattr(torch, "get_autocast_dtype"):
    dtype = torch.get_autocast_dtype("cuda")
else:
    dtype = torch.get_autocast_gpu_dtype()
""",
        CODE,
    )
    check_noop(f"{IMPORT}torch.is_autocast_enabled()\ntorch.set_autocast_enabled(True)\n", CODE)


@pytest.mark.parametrize("used", ["@torch.jit.script\n", "from torch import jit\n\n\n@jit.script\n"])
def test_what_torchscript_does_not_compile_is_not_written(used: str) -> None:
    text = f"{IMPORT}\n\n{used}def f() -> bool:\n    return torch.is_autocast_cpu_enabled()\n"
    check_manual(text, CODE, "TorchScript", torch=">=2.4")
    other = f"{IMPORT}\n\n{used}def f():\n    return torch.get_autocast_cpu_dtype()\n"
    check_transformed(other, other.replace("_cpu_dtype()", '_dtype("cpu")'), CODE, torch=">=2.4")
