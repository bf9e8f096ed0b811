"""The tracer with the real torch, on two ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.trace.records import load

pytest.importorskip("torch")

PROGRAM = """\
import json

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

CONFIG = json.loads('{"to_flat": "scatter_full_optim_state_dict"}')


def to_flat(osd, model):
    return getattr(FSDP, CONFIG["to_flat"])(osd, model)


class Trainer:
    def __init__(self):
        self.model = FSDP(torch.nn.Linear(8, 8), device_id=torch.device("cpu"))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def load(self, osd):
        return FSDP.scatter_full_optim_state_dict(osd, self.model)


dist.init_process_group("gloo")
trainer = Trainer()
trainer.model(torch.randn(2, 8)).sum().backward()
trainer.optimizer.step()
osd = trainer.model.full_optim_state_dict(trainer.model, trainer.optimizer)
to_flat(osd, trainer.model)
trainer.load(osd)
with FSDP.state_dict_type(trainer.model, StateDictType.SHARDED_STATE_DICT):
    trainer.model.state_dict()
get_optimizer_state_dict(trainer.model, trainer.optimizer)
torch.cpu.amp.autocast()
dist.destroy_process_group()
"""


def test_calls_of_two_ranks_are_seen_and_lint_says_what_no_source_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = CliRunner().invoke(cli, ["trace", "-q", "-o", "uses.json", "--", *launch], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "")
    trace = load("uses.json")
    seen = {
        call.place.line: (call.api.rpartition(".")[2], call.times, call.ranks) for call in trace.calls if call.place
    }
    assert seen == {
        12: ("scatter_full_optim_state_dict", 2, (0, 1)),
        21: ("scatter_full_optim_state_dict", 2, (0, 1)),
        28: ("full_optim_state_dict", 2, (0, 1)),
        31: ("state_dict_type", 2, (0, 1)),
        34: ("autocast", 2, (0, 1)),
    }
    assert trace.unwatched == {}
    linted = CliRunner().invoke(cli, ["lint", "--isolated", "-q", "--no-cache", "--trace", "uses.json"]).stdout
    hidden, scattered, *_ = linted.splitlines()
    assert hidden.startswith(
        "train.py:12:12: FSDP104 a run called `FullyShardedDataParallel.scatter_full_optim_state_dict`"
    )
    assert "unsafe fix, ran: only a run shows that `self.optimizer` (torch.optim.adamw.AdamW)" in scattered
