"""Who uses a state dict, as far as the conditions around its uses tell."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.targets.dcp.programs import IMPORTS, RANK_0, block, only, rewritten

SAVE = "state = model.state_dict()"


@pytest.mark.parametrize(
    "behind",
    [
        "if rank == 0:\n    torch.save(state, path)",
        "if dist.get_rank() == 0:\n    torch.save(state, path)",
        "if not rank:\n    torch.save(state, path)",
        "if rank < 1 and path:\n    torch.save(state, path)",
        "if rank > 0:\n    return\ntorch.save(state, path)",
        "if rank > 0:\n    with path.open():\n        return\ntorch.save(state, path)",
        "if dist.get_rank() != 0:\n    del state\nelse:\n    torch.save(state, path)",
        "main = rank == 0\nif main:\n    torch.save(state, path)",
        "if is_main_process():\n    torch.save(state, path)",
        "if path.device_mesh.get_rank() == 0:\n    torch.save(state, path)",
        "if mesh['fsdp'].get_rank() == 0:\n    torch.save(state, path)",
        "if path.accelerator.is_main_process:\n    torch.save(state, path)",
        "whole = {'model': state, 'step': 1}\nif rank == 0:\n    torch.save(whole, path)\ndel whole, state",
        "whole = {}\nwhole['model'] = state\nif rank == 0:\n    torch.save(whole, path)",
        "half = {k: v.half() for k, v in state.items()}\nif rank == 0:\n    torch.save(half, path)",
        "write(state, rank)",
        "torch.save(state, path) if rank == 0 else None",
        "rank == 0 and torch.save(state, path)",
        "state = None\nprint(state)",
    ],
)
def test_rank_0_alone_uses_it(behind: str) -> None:
    helper = "\n\ndef write(what, rank):\n    if rank == 0:\n        torch.save(what, 'x')\n"
    finding = only(block(RANK_0, SAVE, behind) + helper)
    assert finding.applicability is Applicability.SAFE, finding.reason


@pytest.mark.parametrize(
    "behind",
    [
        "torch.save(state, path)",
        "if local_rank == 0:\n    torch.save(state, path)",
        "if path.is_local_main_process:\n    torch.save(state, path)",
        "if dist.get_rank(path) == 0:\n    torch.save(state, path)",
        "if rank == 1:\n    torch.save(state, path)",
        "if rank == 0 or path:\n    torch.save(state, path)",
        "rank = int(os.environ['LOCAL_RANK'])\nif rank == 0:\n    torch.save(state, path)",
        "if is_main():\n    torch.save(state, path)",
        "for key, value in state.items():\n    print(key)",
        "print(len(state))",
        "write(state)",
        "path.state = state",
        "return state",
        "whole = {'model': state}\nprint(whole)",
    ],
)
def test_other_ranks_use_it_too(behind: str) -> None:
    helpers = "\n\ndef write(what):\n    torch.save(what, 'x')\n\n\ndef is_main():\n    return get_local_rank() == 0\n"
    finding = only(block(RANK_0, SAVE, behind) + helpers)
    assert finding.applicability is Applicability.UNSAFE
    assert "ranks other than 0 get an empty dict" in (finding.reason or "")


@pytest.mark.parametrize(
    "behind",
    [
        "if mpu.get_data_parallel_rank() == 0:\n    torch.save(state, path)",
        "if mesh.get_local_rank('fsdp') == 0:\n    torch.save(state, path)",
        "dp_rank = mpu.get_data_parallel_rank()\nif dp_rank == 0:\n    torch.save(state, path)",
        "if path.replica_rank == 0:\n    path.files['last'] = state",
    ],
)
def test_one_rank_of_every_group_still_has_what_it_writes(behind: str) -> None:
    text = block(RANK_0, SAVE, behind)
    finding = only(text)
    assert finding.applicability is Applicability.UNSAFE
    assert "every rank gets the full state dict on its device" in (finding.reason or "")
    assert "true on one rank of every group" in (finding.reason or "")
    after = rewritten(text, unsafe=True)
    assert "StateDictOptions(full_state_dict=True)" in after
    assert "cpu_offload" not in after


def test_what_callers_pass_for_a_rank_decides() -> None:
    text = block(RANK_0, SAVE, "if rank == 0:\n    torch.save(state, path)")
    assert only(f"{text}\n\nf(1, 2, rank, 4)\n").applicability is Applicability.SAFE
    assert only(f"{text}\n\nf(1, 2, local_rank, 4)\n").applicability is Applicability.UNSAFE


def test_a_test_of_the_rank_in_a_group_is_named() -> None:
    finding = only(block(RANK_0, SAVE, "if mpu.get_data_parallel_rank() == 0:\n    torch.save(state, path)"))
    assert "under `mpu.get_data_parallel_rank() == 0`, which is true on one rank" in (finding.reason or "")


def test_a_dict_that_is_returned_is_followed_to_every_caller() -> None:
    save = (
        IMPORTS
        + f"""\
def gather(model):
    with FSDP.state_dict_type(model, {RANK_0}):
        return model.state_dict()


def save(model, rank):
    state = gather(model)
    if rank == 0:
        torch.save(state, "x")
"""
    )
    assert only(save).applicability is Applicability.SAFE
    assert only(f"{save}\n\ndef show(model):\n    print(gather(model))\n").applicability is Applicability.UNSAFE


def test_a_name_that_process_groups_are_made_with_is_the_rank() -> None:
    text = block(RANK_0, SAVE, "if me == 0:\n    torch.save(state, path)", "dist.init_process_group('nccl', rank=me)")
    assert only(text.replace("rank, path", "me, path")).applicability is Applicability.SAFE
