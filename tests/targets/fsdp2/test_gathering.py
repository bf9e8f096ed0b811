"""`summon_full_params` around code that reads."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.converted import Converted, check_wall

BUILT = "model = FSDP(Net(), use_orig_params=True)\n"
READ = "    norms = [p.norm().item() for p in model.parameters()]\n"


@pytest.mark.parametrize(
    "arguments",
    ["model, writeback=False", "model", "module=model, writeback=False, recurse=True", "model, True, False"],
)
def test_a_block_that_reads_gathers_by_a_function(arguments: str) -> None:
    found = Converted(f"{BUILT}with FSDP.summon_full_params({arguments}):\n{READ}")
    assert found.walls == found.differences == []
    assert f"\nwith unsharded(model):\n{READ}" in found.text
    assert "def unsharded(model):" in found.text
    assert "isinstance(module, FSDPModule)" in found.text


def test_what_cannot_be_gathered_alike_is_declared() -> None:
    program = (
        "from torch.distributed.fsdp import MixedPrecision\n"
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))\n"
        f"with FSDP.summon_full_params(model, writeback=False, rank0_only=True, offload_to_cpu=True):\n{READ}"
    )
    found = Converted(program)
    assert found.walls == []
    assert len(set(found.differences)) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    for p in model.parameters():\n        p.mul_(2)\n", "writes to parameters that are gathered"),
        ("    for p in model.parameters():\n        p.data = p.data * 2\n", "writes to parameters that are gathered"),
        ("    x = model(batch)\n", "the model runs while"),
    ],
)
def test_a_block_that_does_more_is_a_wall(body: str, reason: str) -> None:
    check_wall(f"{BUILT}with FSDP.summon_full_params(model):\n{body}", reason)


@pytest.mark.parametrize("argument", ["recurse=False", "with_grads=True", "**more"])
def test_what_has_no_counterpart_is_a_wall(argument: str) -> None:
    assert len(Converted(f"{BUILT}with FSDP.summon_full_params(model, {argument}):\n    pass\n").walls) == 1


def test_another_way_to_enter_is_a_wall() -> None:
    check_wall(f"{BUILT}stack.enter_context(FSDP.summon_full_params(model))\n", "is not entered by `with`")
