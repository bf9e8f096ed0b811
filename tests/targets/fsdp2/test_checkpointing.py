"""Activation checkpointing that is reentrant, behind frozen parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.rewritten import models_of

HEAD = """
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint
"""
NET = """
class Net(torch.nn.Linear):
    def forward(self, x):
        return {call}
net = Net(1, 1)
{freeze}
model = FSDP(net, use_orig_params={kept})
model(x)
"""
FREEZE = "net.bias.requires_grad = False"


def differences(root: Path, call: str, freeze: str = FREEZE, kept: str = "True", head: str = HEAD) -> list[str]:
    (model,) = models_of(root, {"main.py": head + NET.format(call=call, freeze=freeze, kept=kept)})
    assert model.conversion.walls == []
    return [one.what for one in model.conversion.differences]


@pytest.mark.parametrize(
    "call",
    [
        "checkpoint(super().forward, x, use_reentrant=True)",
        "checkpoint(super().forward, x)",
        "CheckpointImpl.REENTRANT",
    ],
)
@pytest.mark.parametrize("freeze", [FREEZE, "net.bias.requires_grad_(False)"])
def test_reentrant_checkpoints_need_a_gradient_in_front(tmp_path: Path, call: str, freeze: str) -> None:
    (found,) = differences(tmp_path, call, freeze)
    assert found.startswith("reentrant checkpointing gives no gradient where nothing in front requires one")


def test_the_module_of_the_checkpoint_counts_and_any_that_freezes(tmp_path: Path) -> None:
    block = "from torch.utils.checkpoint import checkpoint\ndef run(f, x):\n    return checkpoint(f, x)\n"
    (tmp_path / "blocks.py").write_text(block)
    assert len(differences(tmp_path, "run(super().forward, x)", head=f"from blocks import run\n{HEAD}")) == 1


def test_others_are_exact(tmp_path: Path) -> None:
    assert differences(tmp_path, "checkpoint(super().forward, x, use_reentrant=False)") == []
    assert differences(tmp_path, "checkpoint(super().forward, x, use_reentrant=True)", freeze="") == []
    assert differences(tmp_path, "CheckpointImpl.NO_REENTRANT") == []


def test_fsdp1_takes_no_frozen_parameters_into_flat_ones(tmp_path: Path) -> None:
    assert differences(tmp_path, "checkpoint(super().forward, x, use_reentrant=True)", "", kept="False") == []
