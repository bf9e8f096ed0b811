"""FSDP712 and FSDP714: state dicts of an optimizer that has not stepped yet."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = """\
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
BUILT = "optim = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
SAVE = 'dcp.save({"optim": get_optimizer_state_dict(model, optim)}, checkpoint_id=path)\n'
LOAD = 'state = {"optim": optim.state_dict()}\ndcp.load(state, checkpoint_id=path)\n'


@pytest.mark.parametrize(
    "text",
    [
        BUILT + SAVE,
        BUILT + "scheduler = torch.optim.lr_scheduler.StepLR(optim, 3)\n" + SAVE,
        BUILT + "optim.zero_grad()\n" + SAVE,
        BUILT + "state, moments = get_state_dict(model, optim)\ntorch.save(moments, path)\n",
        "optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n" + SAVE,
    ],
)
def test_a_save_before_the_first_step_is_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP712", "if optim.state:")


@pytest.mark.parametrize(
    "text",
    [
        BUILT + "optim.step()\n" + SAVE,
        BUILT + "train(model, optim)\n" + SAVE,
        BUILT + "optim.load_state_dict(torch.load(old))\n" + SAVE,
        BUILT + "for batch in data:\n    " + SAVE + "    optim.step()\n",
        "optim = torch.optim.SGD(model.parameters(), lr=0.1)\n" + SAVE,  # has no state
        "optim = torch.optim.Adagrad(model.parameters())\n" + SAVE,  # has it from the start
        BUILT + 'state = {"optim": get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n',
        "def save(model, optim):\n    " + SAVE,
        "optim = make(model)\n" + SAVE,
    ],
)
def test_a_save_that_may_follow_a_step_is_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP712")


@pytest.mark.parametrize(
    "text",
    [
        BUILT + LOAD,
        BUILT + 'dcp.load({"optim": optim.state_dict()}, checkpoint_id=path)\n',
        BUILT + 'state = {}\nstate["optim"] = optim.state_dict()\ndcp.load(state, checkpoint_id=path)\n',
        BUILT + "state = FSDP.optim_state_dict(model, optim)\ndcp.load(state, checkpoint_id=path)\n",
        "class OptimState(Stateful):\n    def state_dict(self):\n        return {'o': self.optimizer.state_dict()}\n",
    ],
)
def test_a_load_into_an_empty_state_is_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP714", "get_optimizer_state_dict(model, ")
    assert [found.severity.value for found in lint(IMPORT + text, "FSDP714")] == ["changes"]


@pytest.mark.parametrize("optimizer", ["optim", "self.optimizer"])
def test_an_optimizer_from_outside_is_a_hint(optimizer: str) -> None:
    load = f"dcp.load({{'optim': {optimizer}.state_dict()}}, checkpoint_id=path)"
    text = IMPORT + f"def load(self, model, optim, path):\n    {load}\n"
    assert [found.severity.value for found in lint(text, "FSDP714")] == ["hint"]


@pytest.mark.parametrize(
    "text",
    [
        BUILT + "optim.step()\n" + LOAD,
        BUILT + "init_optim_state(optim)\n" + LOAD,
        BUILT + 'state = {"optim": get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n',
        'dcp.load({"model": model.state_dict()}, checkpoint_id=path)\n',
        BUILT + 'dcp.save({"optim": optim.state_dict()}, checkpoint_id=path)\n',
        "class ModelState(Stateful):\n    def state_dict(self):\n        return self.model.state_dict()\n",
        "class OptimState(Stateful):\n    def __init__(self, optimizer):\n        optimizer.step()\n"
        "    def state_dict(self):\n        return self.optimizer.state_dict()\n",
        "class OptimState:\n    def state_dict(self):\n        return self.optimizer.state_dict()\n",
    ],
)
def test_other_loads_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP714")


def test_flat_parameters_may_raise() -> None:
    (named,) = lint(IMPORT + "model = FSDP(net, use_orig_params=True)\n" + BUILT + LOAD, "FSDP714")
    assert named.message.endswith("restores nothing of it, and raises no error")
    (flat,) = lint(IMPORT + "model = FSDP(net)\n" + BUILT + LOAD, "FSDP714")
    assert flat.message.endswith("restores nothing of it")
