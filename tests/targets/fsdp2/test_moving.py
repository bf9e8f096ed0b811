"""Optimizers from before the wrap: which are built behind it instead, and with what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.programs import check_stays, plan

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.optim.lr_scheduler import LinearLR, SequentialLR, StepLR


def train(net, optimizer, schedule):
    optimizer.step()


"""
REASON = "the optimizer holds parameters from before sharding"


def program(before: str, functions: str = "", wrap: str = "net = FSDP(net, use_orig_params=True)") -> str:
    lines = "".join(f"    {line}\n" for line in (*before.splitlines(), wrap, "train(net, optimizer, schedule)"))
    return f"{HEAD}{functions}def main(net, args):\n{lines}"


def converted(folder: Path, text: str) -> str:
    """The lines of `main` behind the call of `fully_shard`."""
    done = plan(folder, text)
    assert done.reasons == []
    return done.texts["train.py"].partition("counts as zero\n")[2]


BUILT = "optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)\n"


@pytest.mark.parametrize(
    "schedule",
    [
        "schedule = StepLR(optimizer, args.every)\n",
        "first = LinearLR(optimizer)\nschedule = SequentialLR(optimizer, [first, StepLR(optimizer, 1)], [10])\n",
    ],
)
def test_schedulers_move_with_their_optimizer(tmp_path: Path, schedule: str) -> None:
    text = converted(tmp_path, program(f"{BUILT}print(net)\n{schedule}print(args)"))
    moved = "".join(f"    {line}\n" for line in (BUILT + schedule).splitlines())
    assert text == f"{moved}    train(net, optimizer, schedule)\n"


BUILDER = """\
def build(model, lr):
    groups = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for name, p in model.named_parameters():
        if p.requires_grad:
            groups[name.endswith("bias") or p.dim() < 2]["params"].append(p)
    optimizer = torch.optim.AdamW(groups, lr=lr)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    return optimizer, StepLR(optimizer, 10)


"""


def test_the_call_of_a_function_that_only_builds_one_moves(tmp_path: Path) -> None:
    text = converted(tmp_path, program("optimizer, schedule = build(net, args.lr)", BUILDER))
    assert text == "    optimizer, schedule = build(net, args.lr)\n    train(net, optimizer, schedule)\n"


def test_the_construction_of_a_class_that_only_builds_one_moves(tmp_path: Path) -> None:
    holder = (
        "class Holder:\n    def __init__(self, model):\n        self.inner = torch.optim.SGD(model.parameters(), 0.1)\n"
    )
    holder += "\n    def step(self):\n        self.inner.step()\n\n\n"
    text = converted(tmp_path, program("optimizer = Holder(net)\nschedule = None", holder))
    assert text == "    optimizer = Holder(net)\n    train(net, optimizer, schedule)\n"


def test_attributes_move_as_names_do(tmp_path: Path) -> None:
    text = HEAD + (
        "class Trainer:\n    def __init__(self, net):\n        self.net = net\n"
        "        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)\n"
        "        self.schedule = StepLR(self.optimizer, 1)\n"
        "        self.net = FSDP(self.net, use_orig_params=True)\n\n\nTrainer(torch.nn.Linear(1, 1))\n"
    )
    assert converted(tmp_path, text).startswith(
        "        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)\n"
        "        self.schedule = StepLR(self.optimizer, 1)\n"
    )


@pytest.mark.parametrize(
    ("before", "functions"),
    [
        (f"{BUILT}schedule = make(optimizer)", ""),
        (f"{BUILT}for group in optimizer.param_groups:\n    group['lr'] = 1\nschedule = StepLR(optimizer, 1)", ""),
        (f"{BUILT}args.lr = 1.0\nschedule = StepLR(optimizer, 1)", ""),
        (f"{BUILT}args = other()\nschedule = StepLR(optimizer, 1)", ""),
        (f"{BUILT}schedule = StepLR(optimizer, args.every)\nargs.every = 3", ""),
        (f"{BUILT}net.load_state_dict(torch.load('x'))\nnet = net.half()\nschedule = StepLR(optimizer, 1)", ""),
        ("optimizer, schedule = build(net, 0.1)", BUILDER.replace("print(", "torch.manual_seed(")),
        ("optimizer, schedule = build(net, 0.1)", BUILDER.replace("p.dim() < 2", "p.mean() < 2")),
        ("optimizer, schedule = build(net, 0.1)\nother = build(net, 0.2)", BUILDER),
        ("optimizer, schedule = build(net, args)\nargs.lr = 2", BUILDER.replace("lr=lr", "lr=lr.lr")),
    ],
)
def test_what_needs_it_or_changes_what_it_is_made_of_stops_it(tmp_path: Path, before: str, functions: str) -> None:
    check_stays(tmp_path, program(before, functions), REASON)


def test_an_optimizer_of_parameters_that_become_flat_does_not_move(tmp_path: Path) -> None:
    text = program("optimizer, schedule = build(net, args.lr)", BUILDER, wrap="net = FSDP(net)")
    check_stays(tmp_path, text, REASON)
