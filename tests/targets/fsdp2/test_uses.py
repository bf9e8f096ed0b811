"""Uses of a model through a whole project: each file afterwards, and what belongs to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.rewritten import after_transaction, models_of, rewritten

WRAP = """\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(module: nn.Module) -> FSDP:
    return FSDP(module, use_orig_params=True)
"""


def test_a_trainer_that_keeps_the_model_of_another_file(tmp_path: Path) -> None:
    trainer = """\
import contextlib
from typing import TYPE_CHECKING

import torch
import torch.nn as nn

from wrapping import wrap

if TYPE_CHECKING:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    model: "FSDP"

    def __init__(self):
        self.model = wrap(nn.Linear(3, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Loop:
    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def micro_batch(self, batch, last):
        with contextlib.ExitStack() as stack:
            if not last:
                stack.enter_context(self.trainer.model.no_sync())
            self.trainer.model(batch).sum().backward()

    def step(self):
        norm = self.trainer.model.clip_grad_norm_(1.0)
        self.trainer.optimizer.step()
        return norm.item()


loop = Loop(Trainer())
loop.micro_batch(torch.ones(3), last=False)
loop.step()
"""
    after = rewritten(tmp_path, {"wrapping.py": WRAP, "main.py": trainer})
    assert "def wrap(module: nn.Module) -> nn.Module:" in after["wrapping.py"]
    new = after["main.py"]
    assert "stack.enter_context(no_sync(self.trainer.model))" in new
    assert "norm = nn.utils.clip_grad_norm_(self.trainer.model.parameters(), 1.0).full_tensor()" in new
    assert 'model: "nn.Module"' in new
    assert "FullyShardedDataParallel" not in "".join(after.values())


def test_an_arm_for_ddp_stays_as_it_is(tmp_path: Path) -> None:
    program = """\
import contextlib

import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def build(args):
    model = nn.Linear(3, 3)
    if args.fsdp:
        model = FSDP(model, use_orig_params=True)
    else:
        model = DDP(model)
    return model


def train(model, args, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        if args.fsdp:
            with model.no_sync():
                model(batch).sum().backward()
        else:
            with model.no_sync():
                model(batch).sum().backward()
        if isinstance(model, FSDP):
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.module if isinstance(model, DDP) else model


def main(args, batches):
    train(build(args), args, batches).eval()
"""
    new = rewritten(tmp_path, {"main.py": program + "\n\nmain(None, [])\n"})["main.py"]
    assert new.count("with no_sync(model):") == 1
    assert new.count("with model.no_sync():") == 1
    assert "if isinstance(model, FSDPModule):\n            nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in new
    assert "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in new
    assert "return model.module if isinstance(model, DDP) else model" in new


def test_what_is_done_with_other_objects_stays(tmp_path: Path) -> None:
    program = """\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Clipper:
    def clip_grad_norm_(self, value):
        return value


teacher = DDP(nn.Linear(1, 1))
with teacher.no_sync():
    teacher.module.train()
for p in teacher.parameters():
    print(p.norm().item())
Clipper().clip_grad_norm_(1.0)
model = FSDP(nn.Linear(1, 1), use_orig_params=True)
"""
    new = rewritten(tmp_path, {"main.py": program})["main.py"]
    kept = program.partition("class Clipper")[2].partition("model = FSDP")[0]
    assert kept in new


def test_a_model_that_goes_to_a_package_is_told(tmp_path: Path) -> None:
    program = WRAP + "\nimport deepspeed\n\nengine = deepspeed.initialize(model=wrap(nn.Linear(1, 1)))\n"
    (model,) = models_of(tmp_path, {"main.py": program})
    told = "`deepspeed.initialize` gets the model, and is not among the files"
    assert [wall.reason for wall in model.conversion.walls] == [told]


def test_two_models_in_one_average(tmp_path: Path) -> None:
    program = WRAP + (
        "\n\ndef update(average, model, decay):\n"
        "    for a, p in zip(average.parameters(), model.parameters()):\n"
        "        a.data.mul_(decay).add_(p.data, alpha=1 - decay)\n\n\n"
        "student, average = wrap(nn.Linear(1, 1)), wrap(nn.Linear(1, 1))\nupdate(average, student, 0.9)\n"
    )
    (model,) = models_of(tmp_path, {"main.py": program})
    assert model.conversion.walls == model.conversion.differences == []


_ONE_ARM_EACH = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, args, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        model(batch).sum().backward()
        if args.fsdp:
            model.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if not args.fsdp:
        show(model)


def show(model):
    print(model)


def wrap(module):
    return FSDP(module, use_orig_params=True)


def main(args, batches):
    model = nn.Linear(3, 3)
    if args.fsdp:
        model = wrap(model)
    train(model, args, batches)


main(None, [])
"""


def test_an_arm_that_only_passes_the_model_on_says_nothing_of_others(tmp_path: Path) -> None:
    (model,) = models_of(tmp_path, {"main.py": _ONE_ARM_EACH})
    assert not model.conversion.walls
    assert "by the norm of all gradients" not in "".join(one.what for one in model.conversion.differences)
    new = rewritten(tmp_path, {"main.py": _ONE_ARM_EACH})["main.py"]
    assert "if args.fsdp:\n            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in new


def test_a_test_that_other_models_are_built_under_too_proves_nothing(tmp_path: Path) -> None:
    program = """\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args, batch):
    model = nn.Linear(3, 3)
    if args.distributed:
        if args.fsdp:
            model = FSDP(model, use_orig_params=True)
        else:
            model = DDP(model)
    if args.distributed:
        with model.no_sync():
            model(batch).sum().backward()


main(None, None)
"""
    (model,) = models_of(tmp_path, {"main.py": program})
    assert [wall.reason for wall in model.conversion.walls] == ["`model` may also be a DDP model here"]


_OF_THE_PROJECT = """\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 3)

    def undecayed(self):
        {body}

    def forward(self, x):
        return self.table(x)


class Net(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def undecayed(self):
        found = set()
        for name, part in self.parts.items():
            if hasattr(part, "undecayed"):
                found |= part.undecayed()
        return found

    def forward(self, x):
        return x


def main(parts):
    model = FSDP(Net(parts), use_orig_params=True)
    if hasattr(model, "slow"):
        print(model.slow())
    print(model.undecayed())


main(None)
"""


def test_methods_of_parts_of_unknown_class_are_those_of_modules_of_the_project(tmp_path: Path) -> None:
    (model,) = models_of(tmp_path, {"main.py": _OF_THE_PROJECT.format(body="return {'table.weight'}")})
    assert not model.conversion.walls
    assert len(model.conversion.differences) == 1
    (model,) = models_of(tmp_path, {"main.py": _OF_THE_PROJECT.format(body="return {self.table(1)}")})
    assert ["outside of forward" in wall.reason for wall in model.conversion.walls] == [True]


@pytest.mark.parametrize(
    ("read", "walls"),
    [("name.split('.')[0]", 0), ("name.split('.')[1]", 1), ("name.split('.', 1)[0]", 0)],
)
def test_the_first_part_of_a_name_in_a_part(tmp_path: Path, read: str, walls: int) -> None:
    program = f"""\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.ModuleDict()

    def freeze(self, frozen):
        for name, p in self.part.named_parameters():
            if {read} in frozen:
                p.requires_grad = False


model = FSDP(Net(), use_orig_params=True)
model.freeze(["x"])
"""
    (model,) = models_of(tmp_path, {"main.py": program})
    assert len(model.conversion.walls) == walls


TWO_ARMS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def main(net, world, debug):
    model = net
    if world > 1:
        model = FSDP(net, use_orig_params=True)
    if debug:
        probe = model
        print(probe)
    plain = model.module if world > 1 else model
    plain.train()
    if world > 1 and not debug:
        {clip}
"""


def test_a_test_under_which_a_model_is_passed_on_excludes_no_use(tmp_path: Path) -> None:
    before = TWO_ARMS.format(clip="model.clip_grad_norm_(1.0)")
    after = rewritten(tmp_path, {"main.py": before})["main.py"]
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in after
    assert "plain = model if world > 1 else model" in after


_ONE_THAT_STAYS = WRAP.replace("wrap(", "wrap_one(") + (
    "\n\ndef is_sharded(module):\n    return isinstance(module, {classes})\n\n\n"
    "def main(module):\n    model = wrap_one(nn.Linear(1, 1))\n    print(is_sharded(model), is_sharded(module))\n\n\n"
    "main(None)\n"
)
_THAT_STAYS = (
    "import deepspeed\nimport torch.nn as nn\nfrom main import is_sharded\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
    "def keep(module):\n    other = FSDP(module)\n    for part in other.modules():\n        is_sharded(part)\n"
    "    return deepspeed.initialize(model=other)\n\n\nkeep(nn.Linear(1, 1))\n"
)


@pytest.mark.parametrize(
    ("classes", "after"),
    [
        ("FSDP", "(FSDP, FSDPModule)"),
        ("(FSDP, nn.Linear)", "(FSDP, FSDPModule, nn.Linear)"),
        ("nn.Linear | FSDP", "nn.Linear | FSDP | FSDPModule"),
    ],
)
def test_a_test_that_models_of_fsdp1_get_to_as_well_has_both_classes(tmp_path: Path, classes: str, after: str) -> None:
    tree = {"main.py": _ONE_THAT_STAYS.format(classes=classes), "other.py": _THAT_STAYS}
    first, second = sorted(models_of(tmp_path, tree), key=lambda one: one.facts.path)
    assert not first.conversion.walls
    assert second.conversion.walls
    assert f"isinstance(module, {after})" in after_transaction(first)
    (tmp_path / "other.py").unlink()
    new = rewritten(tmp_path, {"main.py": _ONE_THAT_STAYS.format(classes=classes)})["main.py"]
    assert f"isinstance(module, {classes.replace('FSDP', 'FSDPModule')})" in new


def test_a_test_in_a_file_that_knows_fsdp2_stays(tmp_path: Path) -> None:
    knowing = _ONE_THAT_STAYS.format(classes="FSDP") + "\n\ndef is_sharded_by_fsdp2(module):\n    return False\n"
    walls = [one.conversion.walls for one in models_of(tmp_path, {"main.py": knowing, "other.py": _THAT_STAYS})]
    assert any("tells models of FSDP1 from others" in wall.reason for one in walls for wall in one)


def test_a_wall_within_a_comprehension_has_a_place(tmp_path: Path) -> None:
    program = WRAP + "\n\nmodel = wrap(nn.Linear(1, 1))\nfor p in model.parameters():\n    print([row for row in p])\n"
    (model,) = models_of(tmp_path, {"main.py": program})
    assert [model.place(wall.facts, wall.node).line for wall in model.conversion.walls] == [11]


def test_a_number_that_is_computed_from_itself(tmp_path: Path) -> None:
    program = WRAP + (
        "\n\nmodel = wrap(nn.Linear(1, 1))\nscale = 1.0\nother = 1.0\nfor p in model.parameters():\n"
        "    scale = other * 0.5\n    other = scale * 0.5\n    p.data.mul_(p.data * scale)\n"
    )
    (model,) = models_of(tmp_path, {"main.py": program})
    assert not model.conversion.walls


def test_a_collection_that_is_copied_from_itself(tmp_path: Path) -> None:
    program = WRAP + (
        "\n\ndef parts(found):\n    found = list(found)\n    while True:\n        found = list(found)\n"
        "        for run in found:\n            run()\n\n\n"
        "with torch.no_grad():\n    parts([])\n"
        "model = wrap(nn.Linear(1, 1))\noptimizer = torch.optim.SGD(model.parameters())\n"
    )
    (model,) = models_of(tmp_path, {"main.py": "import torch\n" + program})
    assert not model.conversion.walls


def test_a_loop_below_that_evaluates_comes_after_the_optimizer(tmp_path: Path) -> None:
    program = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def build(self):
        return FSDP(nn.Linear(3, 3), use_orig_params=True)

    def train(self, batches):
        self.model = self.build()
        optimizer = torch.optim.SGD(self.model.parameters())
        for batch in batches:
            self.model(batch).sum().backward()
            optimizer.step()
            with torch.no_grad():
                self.model(batch)
            self.model.train()


Trainer().train([])
"""
    (model,) = models_of(tmp_path, {"main.py": program})
    assert not model.conversion.walls


def test_calls_with_other_models_do_not_tell_when_an_optimizer_is_built(tmp_path: Path) -> None:
    program = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model):
    return torch.optim.SGD(model.parameters())


def plain(module):
    return build(module)


def main():
    model = FSDP(nn.Linear(3, 3), use_orig_params=True)
    optimizer = build(model)
    model(None).sum().backward()
    optimizer.step()


plain(nn.Linear(1, 1))
main()
"""
    (model,) = models_of(tmp_path, {"main.py": program})
    assert not model.conversion.walls
