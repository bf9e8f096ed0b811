"""Programs of one's own, as a user hands them in."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.verify import Fixture, RunSettings, read_fixture, run

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

OLD = "FSDP.full_optim_state_dict(model, optim)"
NEW = """FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        state = FSDP.optim_state_dict(model, optim)"""
PROGRAM = """
import checkpoint_names
from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def scenario(trial):
    model = trial.model(SHAPE)
    optim = trial.optimizer(model)
    trial.train(model, optim, 2)
    SAVE
    trial.observe(checkpoint_names.OPTIMIZER, state)
"""


def pair(folder: Path, name: str, save: str, shape: str = "") -> Fixture:
    """A pair without a header; the rewritten program lies elsewhere, what both import beside the old one."""
    case, elsewhere = folder / name, folder / f"{name}-rewritten"
    case.mkdir()
    elsewhere.mkdir()
    (case / "checkpoint_names.py").write_text(f"OPTIMIZER = '{name}.optim'\n")
    program = PROGRAM.replace("SHAPE", shape)
    (case / "before.py").write_text(program.replace("SAVE", f"state = {OLD}"))
    (elsewhere / "rewritten.py").write_text(program.replace("SAVE", save))
    return read_fixture(case / "before.py", elsewhere / "rewritten.py", name=name)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("pairs")
    pairs = [
        pair(folder, "right", f"with {NEW}"),
        pair(folder, "wrong", "state = FSDP.optim_state_dict(model, optim)"),
        pair(folder, "halfway", f"state = {OLD}"),
        pair(folder, "own-axis", f"with {NEW}", "use_orig_params=False"),
    ]
    out = io.StringIO()
    assert run(RunSettings(device="cpu"), pairs=pairs, output_format="json", out=out) == 1
    return {(r["fixture"], r["axis"]["use_orig_params"]): r for r in json.loads(out.getvalue())["results"]}


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize(
    ("name", "verdict", "detail"),
    [
        ("right", "SAME", ""),
        ("wrong", "DIFFERS", "rank 1, wrong.optim: {} -> dict with keys 'state', 'param_groups'"),
        ("halfway", "STILL LEGACY", "after.py gives every deprecation warning that before.py gives"),
    ],
)
def test_a_pair_is_judged_without_a_header(
    name: str, verdict: str, detail: str, original: bool, told: dict[tuple[str, bool], dict[str, Any]]
) -> None:
    result = told[name, original]
    assert (result["verdict"], result["detail"].partition(";")[0]) == (verdict, detail)


def test_a_configuration_that_the_programs_do_not_look_at_is_not_run(
    told: dict[tuple[str, bool], dict[str, Any]],
) -> None:
    assert told["own-axis", False]["verdict"] == "SAME"
    repeated = told["own-axis", True]
    assert (repeated["verdict"], repeated["detail"]) == ("SKIPPED", "does not depend on use_orig_params")


def test_the_oracle_followed_the_training(told: dict[tuple[str, bool], dict[str, Any]]) -> None:
    result = told["right", True]
    # Weights and state before training, state after it, and the observed one, which rank 1 does not have.
    assert (result["checked_by_oracle"], result["unchecked"]) == (3, None)


def test_nothing_is_written_beside_the_programs(told: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    pairs = list(folder.glob("pairs*"))
    assert pairs
    assert [cache for pair in pairs for cache in pair.rglob("__pycache__")] == []


BUILD = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(device):
    model = FSDP(torch.nn.Linear(4, 4), device_id=device, use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters())
"""
SAVE = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def state_of(model, optimizer):
    return FSDP.full_optim_state_dict(model, optimizer)
"""
CHECK = """
import torch
from build import build
from save import state_of

def scenario(trial):
    model, optimizer = build(trial.device)
    losses = []
    for step in range(3):
        loss = model(torch.ones(2, 4) * (trial.rank + step)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    trial.observe("losses", losses)
    state = state_of(model, optimizer)
    if trial.rank == 0:
        trial.observe("steps", [float(one["step"]) for one in state["state"].values()])
"""


def test_a_program_of_several_files_is_compared_with_its_conversion_to_fsdp2(tmp_path: Path) -> None:
    for name, text in (("build", BUILD), ("save", SAVE), ("check", CHECK)):
        (tmp_path / f"{name}.py").write_text(text)
    check = str(tmp_path / "check.py")
    result = CliRunner().invoke(cli, ["verify", "--rewrite", check, "--target", "fsdp2", "--unsafe-fixes"])
    assert result.exit_code == 0, result.output
    assert "1 SAME" in result.output
    # Without the fix the model stays as it is, which is no comparison.
    result = CliRunner().invoke(cli, ["verify", "--rewrite", check, "--target", "fsdp2"])
    assert result.exit_code == 1
    assert "STILL LEGACY" in result.output
    assert (tmp_path / "build.py").read_text() == BUILD
