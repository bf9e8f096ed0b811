"""The command `trace`, with a stub of torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.trace.records import load
from tests.test_process import COMMAND, ENVIRONMENT, start
from tests.trace import stub

PROGRAM = """\
import sys
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

for name in sys.argv[1:]:
    getattr(FSDP, name)(FSDP(1), None)
"""
FULL, SCATTER = "full_optim_state_dict", "scatter_full_optim_state_dict"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a program; the stub is in the way of the real torch."""
    monkeypatch.setenv("PYTHONPATH", str(stub.install(tmp_path)))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(root)
    return root


def trace(*arguments: str, python: str = sys.executable) -> Result:
    return CliRunner().invoke(cli, ["trace", "-o", "uses.json", "--", python, *arguments], catch_exceptions=False)


def test_the_calls_of_a_program_are_recorded_and_what_never_is_said(folder: Path) -> None:
    result = trace("train.py", FULL, FULL)
    assert result.exit_code == 0
    first, *more = result.stderr.splitlines()
    assert first == "Wrote uses.json: 2 calls at 1 place, from 1 process with torch."
    assert more[-1].startswith("No call shows what these rules are about (imports, types, positions and defaults")
    assert "FSDP301" in more[-1]
    assert "FSDP101" not in more[-1]
    held = load("uses.json")
    assert [(call.api, call.times) for call in held.calls] == [(stub.FULL, 2)]
    linted = CliRunner().invoke(cli, ["lint", "--isolated", "-q", "--trace", "uses.json"])
    assert linted.stdout.startswith(
        f"train.py:5:5: FSDP101 a run called `FullyShardedDataParallel.{FULL}` here (2 times)"
    )


def test_a_folder_below_the_repository_has_paths_of_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    assert trace("../train.py", FULL).exit_code == 0
    assert set(load("uses.json").files) == {"train.py"}
    linted = CliRunner().invoke(cli, ["lint", "--isolated", "-q", "--trace", "uses.json", ".."])
    assert "train.py:5:5: FSDP101" in linted.stdout


def test_append_adds_a_run_and_without_it_the_file_is_replaced(folder: Path) -> None:
    trace("train.py", FULL)
    arguments = ["trace", "-q", "-o", "uses.json", "--append", "--", sys.executable, "train.py", SCATTER, FULL]
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.output) == (0, "")
    assert {call.api: call.times for call in load("uses.json").calls} == {stub.FULL: 2, stub.SCATTER: 1}
    assert load("uses.json").processes == 2
    trace("train.py")
    assert load("uses.json").calls == ()


def test_a_command_that_fails_passes_its_exit_code_on_and_leaves_its_trace(folder: Path) -> None:
    (folder / "train.py").write_text(PROGRAM + "sys.exit(7)\n")
    assert trace("train.py", FULL).exit_code == 7
    assert len(load("uses.json").calls) == 1
    (folder / "train.py").write_text(PROGRAM + "import os; os.kill(os.getpid(), 9)\n")
    result = trace("train.py", FULL)
    assert result.exit_code == 128 + 9
    assert "it did not end by itself, and may have called more often than noted" in result.stderr
    assert len(load("uses.json").calls) == 1


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-sE"])
def test_a_python_that_ignores_the_environment_is_told(folder: Path, flag: str) -> None:
    result = trace(flag, "-c", "pass")
    assert result.exit_code == 0
    told = f"`{Path(sys.executable).name} {flag}` ignores PYTHONPATH, by which the tracer gets into a program"
    assert f"note: nothing was recorded: {told}" in result.stderr.splitlines()
    assert load("uses.json").calls == ()


def test_other_reasons_for_an_empty_trace_are_told(folder: Path) -> None:
    assert "nothing was recorded: no process imported torch" in trace("-c", "pass").stderr
    told = "nothing was recorded: no Python process read PYTHONPATH"
    assert told in trace("-c", "exit", python="/bin/sh").stderr


def test_bad_usage_is_told_in_one_line(folder: Path) -> None:
    def told(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["trace", *arguments], catch_exceptions=False)
        assert result.exit_code == 2
        return result.stderr.splitlines()[-1]

    assert told("-o", "uses.json", "--", "no-such-command") == "Error: no-such-command: No such file or directory"
    assert told("-o", "uses.json", "--", "./train.py") == "Error: ./train.py: Permission denied"
    assert "the folder" in told("-o", "nowhere/uses.json", "--", sys.executable, "-c", "")
    assert "Missing argument 'COMMAND...'" in told("-o", "uses.json")
    assert "Missing option '-o'" in told("--", "python")
    Path("uses.json").write_text("{}")
    assert "this is not a trace" in told("-o", "uses.json", "--append", "--", sys.executable, "-c", "")
    assert Path("uses.json").read_text() == "{}"


def test_an_interrupt_goes_to_the_program_and_what_it_did_is_written(folder: Path) -> None:
    (folder / "train.py").write_text(
        PROGRAM + "import time\nprint('now', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n"
        "    FSDP.scatter_full_optim_state_dict({}, FSDP(1))\n    sys.exit(3)\n"
    )
    command = [*COMMAND, "trace", "-o", "uses.json", "--", sys.executable, "train.py", FULL]
    path = os.pathsep.join((ENVIRONMENT["PYTHONPATH"], os.environ["PYTHONPATH"]))
    environment = {**ENVIRONMENT, "PYTHONPATH": path}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "2 calls at 2 places" in error
    assert len(load("uses.json").calls) == 2


def test_a_trace_is_not_needed_by_anything_else(folder: Path) -> None:
    done = start(folder, "trace", "--help")
    assert done.returncode == 0
    assert "no values and no data" in " ".join(done.stdout.split())
