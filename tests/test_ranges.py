"""One small project, judged for projects that start at torch 1.13, 2.0, 2.1, 2.6 and 2.15."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli
from tests.trees import plant

SHARD = """\
import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, _or_policy


def big(module, recurse, unwrapped_params):
    return recurse or unwrapped_params > 1000


def shard(model, block, frozen):
    policy = functools.partial(_or_policy, policies=[ModuleWrapPolicy({block}), big])
    return FSDP(model, auto_wrap_policy=policy, ignored_parameters=frozen)


def step(net, scaler, loss, whole, part):
    model = FSDP(net, auto_wrap_policy=big)
    with torch.cuda.amp.autocast():
        scaler.scale(loss(model)).backward()
    dist._all_gather_base(whole, part)
    return model.clip_grad_norm_(1.0)
"""
STATE = """\
from torch.distributed._tensor import DTensor
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._utils import _apply_to_tensors
from torch.distributed.fsdp.flat_param import FlatParameter


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)


def load(model, optim, state):
    optim.load_state_dict(FSDP.optim_state_dict_to_load(state, model, optim))


def local(state):
    return _apply_to_tensors(lambda t: t.to_local() if isinstance(t, DTensor) else t, state)


def flat(param):
    return isinstance(param, FlatParameter)
"""
COMPOSABLE = """\
from torch.distributed._composable.fsdp import fully_shard


def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.set_reduce_scatter_divide_factor(2.0)
"""
CHECKED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    if torch.__version__ >= "2.1":
        return FSDP.full_optim_state_dict(model, optim)
    return FSDP.full_optim_state_dict(model, optim)


def shard(model, frozen):
    if torch.__version__ >= "2.0":
        return FSDP(model, ignored_parameters=frozen)
    raise NotImplementedError
"""
STARTS = ("1.13", "2.0", "2.1", "2.6", "2.15")
# What each place is for a project that starts at 1.13, 2.0, 2.1, 2.6 and 2.15; "-" where it is nothing.
EXPECTED = {
    "checked.py:7 FSDP101": ("deprecated safe",) * 5,
    "checked.py:8 FSDP101": ("hint manual", "hint manual", "-", "-", "-"),
    "checked.py:13 FSDP502": ("breaks manual", "breaks manual", "breaks safe", "breaks safe", "breaks safe"),
    "checked.py:13 FSDP507": ("hint manual", "hint manual", "-", "-", "-"),
    "composable.py:1 FSDP600": ("breaks manual", "breaks manual", "breaks manual", "-", "-"),
    "composable.py:1 FSDP602": ("-", "-", "-", "hint safe", "hint safe"),
    "composable.py:8 FSDP510": ("hint manual", "hint manual", "hint manual", "hint manual", "deprecated safe"),
    "composable.py:8 FSDP600": ("breaks manual", "breaks manual", "breaks manual", "-", "-"),
    "shard.py:6 FSDP600": ("breaks manual", "-", "-", "-", "-"),
    "shard.py:9 FSDP401": ("breaks manual", *("breaks safe",) * 4),
    "shard.py:14 FSDP407": ("breaks manual", "breaks manual", "breaks manual", "-", "-"),
    "shard.py:15 FSDP502": ("breaks manual", "breaks manual", "breaks safe", "breaks safe", "breaks safe"),
    "shard.py:15 FSDP507": ("hint manual", "hint manual", "-", "-", "-"),
    "shard.py:19 FSDP507": ("hint manual", "hint manual", "-", "-", "-"),
    "shard.py:20 FSDP801": ("deprecated safe",) * 5,
    "shard.py:22 FSDP811": ("deprecated safe",) * 5,
    "shard.py:23 FSDP509": ("changes manual", "-", "-", "-", "-"),
    "state.py:1 FSDP600": ("breaks manual", "-", "-", "-", "-"),
    "state.py:1 FSDP601": ("-", "hint manual", "hint manual", "hint safe", "hint safe"),
    "state.py:3 FSDP604": ("breaks safe",) * 5,
    "state.py:4 FSDP303": ("breaks safe",) * 5,
    "state.py:8 FSDP101": ("deprecated manual", "deprecated manual", *("deprecated safe",) * 3),
    "state.py:12 FSDP107": ("breaks safe",) * 5,
    "state.py:20 FSDP301": ("changes unsafe",) * 5,
}


@pytest.mark.parametrize("start", STARTS)
def test_each_start_has_its_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    monkeypatch.chdir(tmp_path)
    plant({"shard.py": SHARD, "state.py": STATE, "composable.py": COMPOSABLE, "checked.py": CHECKED})
    arguments = ["lint", "--hints", "--torch", start, "--output-format", "json", "."]
    findings = json.loads(CliRunner().invoke(cli, arguments).output)["findings"]
    found = {
        f"{Path(one['path']).name}:{one['line']} {one['code']}": f"{one['severity']} {one['applicability']}"
        for one in findings
    }
    expected = {place: grades[STARTS.index(start)] for place, grades in EXPECTED.items()}
    assert found == {place: grade for place, grade in expected.items() if grade != "-"}
