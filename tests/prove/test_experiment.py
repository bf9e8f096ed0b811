"""Which runs an experiment makes, and on what; and the command. Programs run in the last test only."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.prove import experiment
from fsdp_migrate.prove.copies import Project
from fsdp_migrate.prove.experiment import Experiment, Findings, Settings
from fsdp_migrate.prove.launch import Home, Program
from tests.prove.made import Recorder
from tests.prove.test_copies import git, seen

PROGRAM = Program(("train.py", "--small"), nproc=1)


@dataclass
class Runs:
    """Takes the place of the launcher: writes a file as a program would, and a record of one step."""

    saves: bool = True
    made: dict[str, tuple[Program, Any, dict[str, bytes | str]]] = field(default_factory=dict)

    def run(self, program: Program, home: Home, tree: Path, inside: PurePath, plan: Any) -> float:
        name = home.folder.name
        home.temporary.mkdir(exist_ok=True)
        self.made[name] = (program, plan, seen(home.copy))
        (home.copy / f"{name}.pt").write_bytes(b"1")
        (home.temporary / name).write_bytes(b"1")
        record = Recorder(home.record, world=1)
        record.add(0, "step", lr=[0.1], optimizer=0, skipped=False)
        if self.saves:
            record.add(0, "save", 1, api="torch.save", path="a.pt", tree={"t": "dict", "k": []})
        record.end()
        return 1.0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(experiment, "run", lambda *arguments: found.run(*arguments))
    return found


@pytest.fixture
def explore(tmp_path: Path) -> Callable[[Settings], Findings]:
    def findings(settings: Settings) -> Findings:
        made = Experiment(PROGRAM, Project(tmp_path, PurePath(".")), tmp_path / "place", settings, lambda line: None)
        for version in (made.before, made.after):
            version.mkdir(parents=True)
            (version / "train.py").write_text(f"{version.name} = 1\n")
        return made.findings()

    return findings


def test_before_runs_twice_and_each_run_has_a_clean_copy(runs: Runs, explore: Callable[[Settings], Findings]) -> None:
    found = explore(Settings())
    assert {name: copy for name, (_, _, copy) in runs.made.items()} == {
        "before": {"train.py": b"before = 1\n"},
        "before-again": {"train.py": b"before = 1\n"},
        "after": {"train.py": b"after = 1\n"},
    }
    assert [phase.name for phase in found.phases] == ["training"]
    assert found.changed.before == found.changed.after == {"train.py": frozenset([1])}
    assert not any(plan.nudged or plan.deterministic for _, plan, _ in runs.made.values())


def test_a_control_run_is_before_with_its_parameters_moved(runs: Runs, explore: Callable[[Settings], Findings]) -> None:
    assert explore(Settings(drifting=True, measured=True)).phases[0].control is not None
    program, plan, copy = runs.made["control"]
    assert (plan.nudged, copy, program) == (True, {"train.py": b"before = 1\n"}, PROGRAM)
    assert plan.keep > 10**9


def test_each_version_goes_on_from_what_the_other_wrote(runs: Runs, explore: Callable[[Settings], Findings]) -> None:
    found = explore(Settings(steps=1, resume_words=("--resume", "x")))
    assert found.missing_checkpoint is None
    assert {name: copy for name, (_, _, copy) in runs.made.items() if "from" in name} == {
        "before-from-before": {"train.py": b"before = 1\n", "before.pt": b"1"},
        "before-again-from-before-again": {"train.py": b"before = 1\n", "before-again.pt": b"1"},
        "after-from-before": {"train.py": b"after = 1\n", "before.pt": b"1"},
        "before-from-after": {"train.py": b"before = 1\n", "after.pt": b"1"},
    }
    assert runs.made["after-from-before"][0].words == ("train.py", "--small", "--resume", "x")
    assert runs.made["after"][0].words == ("train.py", "--small")
    assert [(phase.resumes, phase.old_code) for phase in found.phases] == [(False, False), (True, False), (True, True)]


def test_without_a_checkpoint_nothing_goes_on(runs: Runs, explore: Callable[[Settings], Findings]) -> None:
    runs.saves = False
    found = explore(Settings(steps=1, resume_words=()))
    assert found.missing_checkpoint == "before saved nothing to go on from by step 1"
    assert len(found.phases) == 1
    assert len(runs.made) == 3


# The command.


@pytest.fixture
def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli, ["prove", *words])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rewrite", "--before", "HEAD", "--", "a.py"], "--rewrite compares the working tree with its rewrite"),
        (["--target", "dcp", "--", "a.py"], "--target is for --rewrite: otherwise both versions are as they are"),
        (["--resume-args", "x", "--", "a.py"], "--resume-args is for --then-resume"),
        (
            ["--nnodes", "2", "--rdzv-endpoint", "a:1", "--", "a.py"],
            "--nnodes needs --node-rank: a machine has to have",
        ),
        (["--env", "=1", "--", "a.py"], "--env =1: give NAME=VALUE"),
        (["--", "a.py"], "not in a git repository"),
        (["--shared", "data", "--", "a.py"], "not in a git repository"),
        ([], "Missing argument"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], told: str, prove: Callable[..., Result]) -> None:
    result = prove(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_two_versions_with_the_same_files_are_not_run(prove: Callable[..., Result], tmp_path: Path, runs: Runs) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    pytest.importorskip("torch")
    result = prove("--", "a.py")
    assert result.exit_code == 2
    assert (
        "HEAD and the working tree have the same files: name another version with --before or --after" in result.stderr
    )
    result = prove("--rewrite", "--", "a.py")
    assert result.exit_code == 2
    assert "rewriting changes nothing, so there is nothing to compare" in result.stderr
    assert runs.made == {}


TRAIN = """
import pathlib, sys, torch
from own_library.rates import RATE
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
for step in range(2):
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "out.pt")
print("from", sys.modules["own_library.rates"].__file__)
"""


def test_a_fault_in_a_package_that_is_installed_from_the_tree_is_found_and_the_tree_is_untouched(
    prove: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    rates = tmp_path / "src" / "own_library" / "rates.py"
    rates.parent.mkdir(parents=True)
    (rates.parent / "__init__.py").write_text("")
    rates.write_text("RATE = 0.5\n")
    (tmp_path / "train.py").write_text(TRAIN)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    rates.write_text("RATE = 0.25\n")
    temporary = tmp_path.parent / f"{tmp_path.name}-temporary"
    temporary.mkdir()
    before = seen(tmp_path)
    # As the .pth file of an editable installation does it.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = prove("--nproc", "1", "--output-format", "json", "--", "train.py")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["verdict"]) == (1, "DIFFERS"), result.stderr
    assert "learning rate" in told["detail"]
    assert "0.5" in told["detail"]
    assert "0.25" in told["detail"]
    assert seen(tmp_path) == before
    assert list(temporary.iterdir()) == []
    assert subprocess.run(["git", "status", "--short"], cwd=tmp_path, capture_output=True, text=True).stdout == (
        " M src/own_library/rates.py\n"
    )
