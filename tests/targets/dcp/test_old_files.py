"""FSDP715: loads that files of older releases lack a key for."""

from __future__ import annotations

from tests.rules.checks import check_noop, lint

IMPORT = """\
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

optim = torch.optim.AdamW(model.parameters())
"""
LOAD = "state = {'optim': get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n"


def test_a_load_of_adamw_is_a_hint_where_old_and_new_releases_are_supported() -> None:
    (found,) = lint(IMPORT + LOAD, "FSDP715")
    assert found.severity.value == "hint"
    assert "allow_partial_load" in (found.reason or "")


def test_adam_and_the_state_inside_a_stateful_are_found_too() -> None:
    assert lint((IMPORT + LOAD).replace("AdamW", "Adam"), "FSDP715")
    stateful = """\
from torch.distributed.checkpoint.stateful import Stateful


class App(Stateful):
    def __init__(self, model, optim):
        self.model, self.optim = model, optim

    def state_dict(self):
        return {"optim": get_optimizer_state_dict(self.model, self.optim)}


"""
    assert lint(IMPORT + stateful + "dcp.load({'app': App(model, optim)}, checkpoint_id=path)\n", "FSDP715")
    pair = "weights, moments = dcp.state_dict.get_state_dict(model, optim)\n"
    assert lint(IMPORT + pair + "dcp.load({'optim': moments}, checkpoint_id=path)\n", "FSDP715")


def test_one_side_alone_a_planner_and_another_optimizer_are_left() -> None:
    check_noop(IMPORT + LOAD, "FSDP715", torch=">=2.9")
    check_noop(IMPORT + LOAD, "FSDP715", torch=">=2.4,<2.7")
    check_noop(IMPORT + LOAD.replace("=path)", "=path, planner=planner)"), "FSDP715")
    check_noop((IMPORT + LOAD).replace("AdamW", "SGD"), "FSDP715")
