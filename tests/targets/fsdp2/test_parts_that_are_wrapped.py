"""Parts of a model that are wrapped by themselves, and parameters that are not sharded at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.rewritten import models_of

HEAD = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self, tie=False):
        super().__init__()
        self.embed = nn.Embedding(4, 4)
        self.head = nn.Linear(4, 4)
        if tie:
            self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


model = Net()
"""


def walls(root: Path, program: str) -> list[str]:
    (model,) = models_of(root, {"main.py": HEAD + program})
    return [wall.reason for wall in model.conversion.walls]


def test_what_a_constructor_does_with_a_part_that_is_wrapped_later_is_fine(tmp_path: Path) -> None:
    assert walls(tmp_path, "model.head = FSDP(model.head)\nmodel = FSDP(model)\n") == []


def test_what_is_assigned_on_a_part_after_it_is_wrapped_is_not(tmp_path: Path) -> None:
    (reason,) = walls(tmp_path, "model.head = FSDP(model.head)\nmodel.head.scale = 3\nmodel = FSDP(model)\n")
    assert reason == "`model.head.scale` is assigned on the model after it is wrapped"


@pytest.mark.parametrize("ignored", ["ignored_states=[model.head.weight]", "ignored_states=(model.head.weight,)"])
def test_the_user_may_reduce_what_is_not_sharded(tmp_path: Path, ignored: str) -> None:
    program = f"model = FSDP(model, {ignored}, use_orig_params=True)\n"
    assert walls(tmp_path, f"{program}dist.all_reduce(model.head.weight.grad)\n") == []
    (reason,) = walls(tmp_path, f"{program}dist.all_reduce(model.embed.weight.grad)\n")
    assert "gives a sharded parameter to a collective" in reason


def test_a_parameter_may_get_a_gradient_like_itself(tmp_path: Path) -> None:
    loop = "model = FSDP(model, use_orig_params=True)\nfor p in model.parameters():\n    p.grad = torch.zeros_like("
    assert walls(tmp_path, f"{loop}p)\n") == []
    assert walls(tmp_path, f"{loop}p.data)\n") == []
    assert walls(tmp_path, f"{loop}p).cpu().numpy()\n") != []
