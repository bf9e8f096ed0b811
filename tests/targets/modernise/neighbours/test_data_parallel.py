from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

DDP = "import torch.distributed\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"


@pytest.mark.parametrize("argument", ["check_reduction=True", "check_reduction=False", "broadcast_buffers=True"])
def test_an_argument_without_effect_goes(argument: str) -> None:
    check_transformed(f"{DDP}DDP(m, {argument}, dim=0)\n", f"{DDP}DDP(m, dim=0)\n", "FSDP815")
    check_transformed(
        f"import torch\nimport torch.distributed\ntorch.nn.parallel.DistributedDataParallel(m, {argument})\n",
        "import torch\nimport torch.distributed\ntorch.nn.parallel.DistributedDataParallel(m)\n",
        "FSDP815",
    )


@pytest.mark.parametrize("value", ["False", "args.sync"])
def test_what_nothing_takes_the_place_of_is_a_hint(value: str) -> None:
    text = f"{DDP}DDP(m, broadcast_buffers={value})\n"
    check_manual(text, "FSDP815", "copies the buffers once when the model is built")
    assert [finding.severity for finding in lint(text, "FSDP815")] == [Severity.HINT]
    check_noop(text, "FSDP815", torch=">=2.1,<2.13")


def test_a_comment_stays_and_a_call_is_not_dropped() -> None:
    before, after = "check_reduction=True,  # why\n    dim=0)", "\n    # why\n    dim=0)"
    check_transformed(f"{DDP}DDP(m, {before}\n", f"{DDP}DDP(m,{after}\n", "FSDP815")
    (found,) = lint(f"{DDP}DDP(m, {before}\n", "FSDP815")
    assert found.message.endswith("; the comment at `check_reduction` stays in the call")
    check_manual(f"{DDP}DDP(m, check_reduction=f())\n", "FSDP815", "unless its value has side effects")


def test_other_classes_and_files_without_torch_distributed_are_left_alone() -> None:
    check_noop("from x import DDP\nimport torch.distributed\nDDP(m, check_reduction=True)\n", "FSDP815")
    check_noop(f"{DDP}DDP(m, forward_sync_buffers=False)\nDDP(m, **kwargs)\n", "FSDP815")
