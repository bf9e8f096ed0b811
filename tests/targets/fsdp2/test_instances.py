"""Tests of what a model is: FSDP1's wrapper is no instance of its module's class, a model of FSDP2 is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.rewritten import models_of, rewritten

HEAD = """
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
class Net(nn.Linear):
    pass
class Deep(Net):
    pass
class Other(nn.Module):
    pass
net = Net(1, 1)
"""
WRAP = "model = FSDP(net, use_orig_params=True)\n"
INSIDE, TRUE = "is false for the module inside", "is false for FSDP1's wrapper"


def walls(root: Path, program: str) -> list[str]:
    (model,) = models_of(root, {"main.py": HEAD + program})
    return [wall.reason for wall in model.conversion.walls]


@pytest.mark.parametrize(
    "program",
    [
        f"{WRAP}print(isinstance(net, FSDP))\n",
        f"{WRAP}print(isinstance(net, (FSDP, Other)))\n",
        f"{WRAP}KINDS = (FSDP, Other)\nprint(isinstance(net, KINDS))\n",
        f"{WRAP}print(isinstance(model.module, FSDP))\n",
        f"{WRAP}inner = model.module\nprint(isinstance(inner, FSDP))\n",
        f"{WRAP}inner = getattr(model, 'module', model)\nprint(isinstance(inner, FSDP))\n",
        f"{WRAP}def show(m):\n    print(isinstance(m, FSDP))\nshow(model)\nshow(net)\n",
        "class T:\n    def build(self):\n        self.net = Net(1, 1)\n        self.model = FSDP(self.net)\n"
        "    def show(self):\n        print(isinstance(self.net, FSDP))\nT().build()\n",
    ],
)
def test_the_module_inside_becomes_what_it_was_not(tmp_path: Path, program: str) -> None:
    (found,) = walls(tmp_path, program)
    assert INSIDE in found


@pytest.mark.parametrize(
    "test",
    [
        "isinstance(model, Net)",
        "isinstance(model, nn.Linear)",
        "isinstance(model, (Other, Net))",
        "isinstance(model, type(net))",
    ],
)
def test_the_model_becomes_an_instance_of_the_class_of_its_module(tmp_path: Path, test: str) -> None:
    found = walls(tmp_path, f"{WRAP}if {test}:\n    print(1)\n")
    assert any(TRUE in one for one in found)


@pytest.mark.parametrize(
    "program",
    [
        f"{WRAP}print(isinstance(model, Other), isinstance(model, Deep), isinstance(model, nn.Module))\n",
        f"{WRAP}print(isinstance(model, nn.parallel.DistributedDataParallel), isinstance(model, nn.Sequential))\n",
        f"{WRAP}print(isinstance(model, (FSDP, Net)))\n",
        f"{WRAP}print(isinstance(model, list | tuple), isinstance(model, (dict, torch.Tensor)))\n",
        "from somewhere import make\nmodel = FSDP(make(), use_orig_params=True)\nprint(isinstance(model, list))\n",
        f"{WRAP}print(isinstance(model.module, Net), isinstance(net, Net))\n",
        f"{WRAP}if isinstance(model, FSDP):\n    model = model.module\nprint(isinstance(model, Net))\n",
        "def wrap(m):\n    return m if isinstance(m, FSDP) else FSDP(m, use_orig_params=True)\nwrap(net)\n",
        f"def show(m):\n    print(isinstance(m, FSDP))\nshow(net)\n{WRAP}show(model)\n",
        f"{WRAP}print(hasattr(net, 'clip_grad_norm_'), hasattr(net, 'no_sync'), getattr(net, 'no_sync', None))\n",
        f"{WRAP}for m in model.modules():\n    print(isinstance(m, nn.Linear))\n",
    ],
)
def test_this_is_the_same(tmp_path: Path, program: str) -> None:
    assert walls(tmp_path, program) == []


def test_what_only_fsdp1_has_is_still_missing_inside(tmp_path: Path) -> None:
    program = f"{WRAP}print(hasattr(net, 'clip_grad_norm_'), hasattr(model, 'clip_grad_norm_'))\n"
    text = rewritten(tmp_path, {"main.py": HEAD + program})["main.py"]
    assert text.endswith("print(hasattr(net, 'clip_grad_norm_'), isinstance(model, FSDPModule))\n")


@pytest.mark.parametrize(
    "test", ["type(net) is Net", "net.__class__ is Net", "type(model) is Net", "type(model) == FSDP"]
)
def test_the_class_of_a_model_is_not_asked_for(tmp_path: Path, test: str) -> None:
    assert len(walls(tmp_path, f"{WRAP}print({test})\n")) == 1


UNKNOWN = "from somewhere import make\nmodel = FSDP(make(), use_orig_params=True)\n"


@pytest.mark.parametrize(
    "cls",
    [
        "class Kind:\n    pass\n",
        "class Above(dict):\n    pass\nclass Kind(Above):\n    pass\nclass Low(Kind):\n    pass\n",
    ],
)
def test_a_module_is_no_instance_of_a_class_without_modules(tmp_path: Path, cls: str) -> None:
    assert not walls(tmp_path, f"{cls}{UNKNOWN}print(isinstance(model, Kind))\n")


@pytest.mark.parametrize(
    "cls",
    [
        "class Kind(nn.Module):\n    pass\n",
        "class Kind:\n    pass\nclass Low(Kind, nn.Module):\n    pass\n",
        "class Kind(typing.Protocol):\n    pass\n",
        "class Kind(metaclass=Meta):\n    pass\n",
        "from somewhere import Base\nclass Kind(Base):\n    pass\n",
    ],
)
def test_a_module_may_be_an_instance_of_other_classes(tmp_path: Path, cls: str) -> None:
    (found,) = walls(tmp_path, f"import typing\n{cls}{UNKNOWN}print(isinstance(model, Kind))\n")
    assert TRUE in found
