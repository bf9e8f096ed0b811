"""The module that is wrapped, under another name: before the wrapping, and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.rewritten import models_of

HEAD = """
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
class Net(nn.Linear):
    pass
"""
WRAP = "model = FSDP(base, use_orig_params=True)\n"


def walls(root: Path, program: str) -> list[str]:
    (model,) = models_of(root, {"main.py": HEAD + program})
    return [wall.reason for wall in model.conversion.walls]


@pytest.mark.parametrize(
    "program",
    [
        f"base = Net(1, 1)\nprint(base.weight.norm().item())\n{WRAP}",
        f"base = Net(1, 1)\n{WRAP}base.train()\nx = base.in_features\n",
        "model = Net(1, 1)\nmodel.load_state_dict(x)\nmodel = FSDP(model, use_orig_params=True)\n",
        f"def init(m):\n    m.weight.data[0] = 1\nbase = Net(1, 1)\ninit(base)\n{WRAP}",
        "def wrap(m):\n    return FSDP(m, use_orig_params=True)\n"
        "base = Net(1, 1)\nx = base.state_dict()\nmodel = wrap(base)\n",
        f"base = Net(1, 1)\nfor p in base.parameters():\n    p.requires_grad = False\n{WRAP}",
        "def wrap(m, how):\n    if how == 1:\n        return FSDP(m, use_orig_params=True)\n"
        "    if how == 2:\n        return nn.parallel.DistributedDataParallel(m)\n    return m\nwrap(Net(1, 1), 1)\n",
        f"base = Net(1, 1)\nsize = sum(p.numel() for p in base.parameters())\n{WRAP}print(size)\n",
    ],
)
def test_this_is_fine(tmp_path: Path, program: str) -> None:
    assert walls(tmp_path, program) == []


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("base = Net(1, 1)\nmodel = FSDP(base)\nx = base.state_dict()\n", "sharded tensors"),
        ("base = Net(1, 1)\nmodel = FSDP(base)\nx = base.weight.norm().item()\n", "reads the elements"),
        (
            "class T:\n    def build(self):\n        self.base = Net(1, 1)\n        self.model = FSDP(self.base)\n"
            "    def save(self):\n        return self.base.state_dict()\nT().build()\n",
            "sharded tensors",
        ),
    ],
)
def test_this_is_a_wall(tmp_path: Path, program: str, reason: str) -> None:
    found = walls(tmp_path, program)
    assert len(found) == 1, found
    assert reason in found[0]


def test_a_function_that_is_also_called_with_other_modules(tmp_path: Path) -> None:
    program = """
def policy_of(m):
    return table.get(m)
def other():
    return policy_of(Net(2, 2))
base = Net(1, 1)
policy_of(base)
model = FSDP(base, use_orig_params=True)
other()
"""
    assert walls(tmp_path, program) == []
