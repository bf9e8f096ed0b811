"""FSDP718: objects that the old functions pickle and the new ones take apart."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = """\
import torch
import torch.distributed.checkpoint as dcp

scheduler = torch.optim.lr_scheduler.StepLR(optim, 3)
"""
STATE = "state = {'scheduler': scheduler, 'epoch': 0}\n"
SAVE = "dcp.save(state, storage_writer=writer)\n"
LOAD = "dcp.load(state, storage_reader=reader)\n"
OLD_SAVE = "dcp.save_state_dict(state, writer)\n"
OLD_LOAD = "dcp.load_state_dict(state, storage_reader=reader)\n"
NEWEST = ">=2.6"


@pytest.mark.parametrize(
    "text",
    [
        STATE + SAVE + OLD_LOAD,
        STATE + OLD_SAVE + LOAD,
        "state = {}\nstate['scheduler'] = scheduler\n" + SAVE + OLD_LOAD,
        "dcp.save({'scheduler': scheduler}, storage_writer=w)\ndcp.load_state_dict({'scheduler': scheduler}, r)\n",
    ],
)
def test_an_object_between_old_and_new_is_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP718", "scheduler.state_dict()", torch=NEWEST)
    assert [found.severity.value for found in lint(IMPORT + text, "FSDP718", NEWEST)] == ["breaks"]


@pytest.mark.parametrize(
    "text",
    [
        STATE + SAVE + LOAD,
        STATE + OLD_SAVE + OLD_LOAD,
        "state = {'scheduler': scheduler.state_dict()}\n" + SAVE + OLD_LOAD,
        "dcp.save({'scheduler': scheduler}, storage_writer=w)\ndcp.load_state_dict({'other': scheduler}, r)\n",
        "dcp.save({'epoch': epoch}, storage_writer=w)\ndcp.load_state_dict({'epoch': epoch}, r)\n",
        STATE + LOAD + "state['scheduler'].step()\n",
    ],
)
def test_other_checkpoints_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP718", torch=NEWEST)


def test_sides_that_no_release_runs_together_are_left() -> None:
    gate = "if torch.__version__ >= '2.4':\n    " + SAVE + "else:\n    " + OLD_LOAD
    gate = gate.replace("torch.__version__ >= '2.4'", "Version(torch.__version__) >= Version('2.4')")
    check_noop("from packaging.version import Version\n" + IMPORT + STATE + gate, "FSDP718", torch=">=2.2")


def test_reading_the_object_behind_load_is_found_where_the_state_takes_its_place() -> None:
    read = STATE + LOAD + "state['scheduler'].step()\n"
    check_manual(IMPORT + read, "FSDP718", "`load` calls its `load_state_dict`", torch=">=2.4")
    assert [found.severity.value for found in lint(IMPORT + read, "FSDP718", ">=2.4")] == ["changes"]
    check_noop(IMPORT + STATE + LOAD + "scheduler.step()\nprint(state['epoch'])\n", "FSDP718", torch=">=2.4")
    check_noop(IMPORT + STATE + "state['scheduler'].step()\n" + LOAD, "FSDP718", torch=">=2.4")
