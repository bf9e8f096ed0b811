"""FSDP713: checkpoint functions that only some ranks get to."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.checks import check_manual, check_noop

IMPORT = """\
import os
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

"""
SAVE = "dcp.save(state, checkpoint_id=path)\n"
FULL = "options=StateDictOptions(full_state_dict=True)"
GATHER = f"weights = get_model_state_dict(model, {FULL})\n"


def under(test: str, body: str = SAVE) -> str:
    return f"if {test}:\n{indent(body, '    ')}"


@pytest.mark.parametrize(
    "text",
    [
        under("dist.get_rank() == 0"),
        under("rank == 0"),
        under("0 == self.global_rank"),
        under("not is_main_process()", "pass\n") + "else:\n    " + SAVE,
        under("dist.is_initialized() and dist.get_rank() == 0"),
        under("not dist.is_initialized() or dist.get_rank() == 0"),
        "rank = int(os.environ['RANK'])\n" + under("rank == 0"),
        "def save(state, path):\n    if rank != 0:\n        return\n    " + SAVE,
        "def save(state, path):\n    if rank != 0:\n        with log:\n            return\n    " + SAVE,
        "@rank_zero_only\ndef save(state, path):\n    " + SAVE,
        "model = FSDP(net)\n" + under("rank == 0", GATHER),
        "fully_shard(model)\n" + under("rank == 0", GATHER),
        under("rank == 0", f"set_model_state_dict(model, w, {FULL[:-1]}, broadcast_from_rank0=True))\n"),
    ],
)
def test_a_call_behind_a_test_of_the_rank_is_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP713", "call it on every rank")


@pytest.mark.parametrize(
    "text",
    [
        SAVE,
        under("rank == 0", "dcp.save(state, checkpoint_id=path, no_dist=True)\n"),
        under("rank == 0", "dcp.save(state, checkpoint_id=path, process_group=group)\n"),
        under("rank == 0", "dcp.save(state, checkpoint_id=path, **more)\n"),
        under("step == 0"),
        under("epoch == 0 and enabled"),
        under("world_size == 1 and rank == 0"),
        under("rank == 0 or sharded"),
        under("dp_rank == 0"),
        "rank = dist.get_rank(group)\n" + under("rank == 0"),
        under("rank == 0", SAVE) + "else:\n    " + SAVE,
        under("rank == 0", "dcp.save(one, checkpoint_id=path)\n") + "else:\n    self.save()\n",
        under("rank == 0", GATHER),  # a plain model gathers nothing
        "model = FSDP(net)\n" + GATHER + under("rank == 0", "torch.save(weights, path)\n"),
        "model = FSDP(net)\n" + under("rank == 0", "shards = get_model_state_dict(model)\n"),
    ],
)
def test_what_every_rank_does_or_one_can_do_alone_is_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP713")
