"""FSDP907: policies without a dtype for the reduction of gradients."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = "import torch\nfrom torch.distributed.fsdp import MixedPrecisionPolicy\n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("param_dtype=torch.bfloat16", "param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16"),
        ("torch.float16", "torch.float16, reduce_dtype=torch.float16"),
        ("output_dtype=x, param_dtype=self.dtype", "output_dtype=x, param_dtype=self.dtype, reduce_dtype=self.dtype"),
        ("param_dtype=d, output_dtype=x", "param_dtype=d, reduce_dtype=d, output_dtype=x"),
    ],
)
def test_the_dtype_of_the_parameters_is_written_down(before: str, after: str) -> None:
    old, new = (f"{IMPORT}policy = MixedPrecisionPolicy({arguments})\n" for arguments in (before, after))
    check_transformed(old, new, "FSDP907", torch=">=2.6,<2.15")
    check_transformed(old, new, "FSDP907", unsafe=True, torch=">=2.6")


def test_a_change_is_told_where_torch_2_15_is_supported_and_a_hint_elsewhere() -> None:
    text = IMPORT + "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n"
    assert [found.severity.value for found in lint(text, "FSDP907", ">=2.6")] == ["changes"]
    assert [found.severity.value for found in lint(text, "FSDP907", ">=2.6,<2.15")] == ["hint"]


def test_nobody_sees_what_is_meant_on_torch_2_15_alone_or_of_a_call() -> None:
    check_manual(IMPORT + "MixedPrecisionPolicy(param_dtype=d)\n", "FSDP907", "pass `reduce_dtype=`", torch=">=2.15")
    check_manual(IMPORT + "MixedPrecisionPolicy(param_dtype=get())\n", "FSDP907", "assign", torch=">=2.6")


@pytest.mark.parametrize(
    "arguments",
    ["", "torch.bfloat16, torch.float32", "param_dtype=torch.float32", "param_dtype=None", "**options", "*given"],
)
def test_other_policies_are_left(arguments: str) -> None:
    check_noop(f"{IMPORT}policy = MixedPrecisionPolicy({arguments})\n", "FSDP907", torch=">=2.6")
    check_noop(f"from mine import MixedPrecisionPolicy\nMixedPrecisionPolicy({arguments})\n", "FSDP907")
