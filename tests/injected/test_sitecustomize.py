"""What starts inside every Python process of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.injected import sitecustomize

INSTALLED = "def install(plan): print({name!r}, plan, __name__)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the package, with modules that only print."""
    copy = tmp_path / "injected"
    shutil.copytree(Path(sitecustomize.__file__).parent, copy)
    for name in sitecustomize.ASKED_BY.values():
        shutil.rmtree(copy / name, ignore_errors=True)
        (copy / f"{name}.py").write_text(INSTALLED.format(name=name))
    return copy


def run(folder: Path, program: str, *more: Path, **environment: str) -> str:
    path = os.pathsep.join(map(str, [folder, *more]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_without_a_plan_nothing_is_loaded_and_no_module_of_the_folder_is_in_the_way(folder: Path) -> None:
    program = "import sys; print([n for n in sys.modules if 'fsdp_migrate' in n], sys.path[1]); import recorder"
    (folder / "other").mkdir()
    (folder / "other" / "recorder.py").write_text("print('of the user')")
    assert run(folder, program, folder / "other") == f"[] {folder / 'other'}\nof the user\n"


def test_what_the_environment_asks_for_is_installed_in_child_processes_too(folder: Path) -> None:
    program = "import subprocess, sys; sys.stdout.flush(); subprocess.run([sys.executable, '-c', ''])"
    told = run(folder, program, FSDP_MIGRATE_PROVE="a.json", FSDP_MIGRATE_TRACE="b.json")
    once = "recorder a.json fsdp_migrate_injected.recorder\ntracer b.json fsdp_migrate_injected.tracer\n"
    assert told == 2 * once


def test_a_sitecustomize_that_it_shadows_runs_first_and_is_the_module_of_that_name(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "sitecustomize.py").write_text("print('theirs', __name__); MINE = 1")
    program = "import sitecustomize; print(sitecustomize.MINE, sitecustomize.__file__)"
    told = run(folder, program, folder / "other", FSDP_MIGRATE_TRACE="b.json")
    theirs = folder / "other" / "sitecustomize.py"
    assert told == f"theirs sitecustomize\ntracer b.json fsdp_migrate_injected.tracer\n1 {theirs}\n"


def test_one_that_fails_keeps_nothing_from_being_installed(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "sitecustomize.py").write_text("1 / 0")
    done = subprocess.run(
        [sys.executable, "-c", "print('on')"],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'other'}", "FSDP_MIGRATE_TRACE": "b.json"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "tracer b.json fsdp_migrate_injected.tracer\non\n"
    assert "ZeroDivisionError" in done.stderr
