from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from fsdp_migrate import lint as engine
from fsdp_migrate import runner
from fsdp_migrate.planning import workers
from fsdp_migrate.planning.planner import Effort
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings.configuration import Configuration
from tests.runner.test_cache import LEGACY

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are started where there is no fork")


def test_every_task_has_its_result_whoever_did_it() -> None:
    found = dict(workers.results(lambda task: (task * 2, os.getpid()), list(range(20)), 3))
    assert {place: result[0] for place, result in found.items()} == {n: 2 * n for n in range(20)}
    pids = {pid for _, pid in found.values()}
    assert os.getpid() not in pids
    assert len(pids) == 3


def test_a_process_that_dies_takes_only_its_task_with_it() -> None:
    def work(task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == 5:
            os._exit(7)
        return task

    found = dict(workers.results(work, list(range(9)), 2))
    assert str(found.pop(3)) == "not checked: its worker process was killed by signal 9"
    assert str(found.pop(5)) == "not checked: its worker process ended with status 7"
    assert found == {n: n for n in range(9) if n not in (3, 5)}


def test_processes_are_used_as_far_as_they_pay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert [workers.count(None, size) for size in (0, 900_000, 2_500_000, 50_000_000)] == [1, 1, 2, 4]
    assert workers.count(7, 0) == 7
    monkeypatch.delattr(os, "fork")
    assert workers.count(7, 50_000_000) == 1


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number in range(9):
        (tmp_path / f"m{number}.py").write_text(LEGACY + f"\nx = {number}\n" * number)
    (tmp_path / "clean.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text(LEGACY + "def (:\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_processes_find_what_one_finds_in_the_same_order(tree: Path) -> None:
    runs = [runner.lint(filesystem.discover(["."]), Configuration(), effort=Effort(jobs)) for jobs in (1, 2, 16)]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0].findings) == 10
    assert [finding.fix for finding in runs[0].findings] == [finding.fix for finding in runs[1].findings]


def test_the_file_of_a_process_that_dies_is_named_and_the_others_are_done(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, real = os.getpid(), engine.lint_bytes

    def lint_bytes(raw: bytes, path: str, *more: object, **named: object) -> object:
        if path == "m4.py" and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(raw, path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "lint_bytes", lint_bytes)
    plan = runner.lint(filesystem.discover(["."]), Configuration(), effort=Effort(jobs=2))
    (failure,) = plan.failures
    assert failure.path == "m4.py"
    assert failure.message.startswith("not checked: its worker process was killed by signal")
    assert sorted({finding.path for finding in plan.findings}) == [
        "broken.py",
        *(f"m{n}.py" for n in range(9) if n != 4),
    ]
    assert plan.exit_code == 3


def test_a_fault_in_a_process_is_told_as_without(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lint_bytes(*_: object, **__: object) -> object:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(engine, "lint_bytes", lint_bytes)
    plan = runner.lint(filesystem.discover(["."]), Configuration(), effort=Effort(jobs=2))
    assert len(plan.failures) == 10
    assert "a bug in fsdp-migrate, please report it: ZeroDivisionError: no" in plan.failures[0].message


def test_nothing_is_started_for_a_single_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsdp_migrate.planning.workers", None)
    assert len(runner.lint(filesystem.discover(["m1.py"]), Configuration(), effort=Effort(jobs=8)).findings) == 1
