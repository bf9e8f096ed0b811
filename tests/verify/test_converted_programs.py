"""Whole programs that the target fsdp2 converts train, save and resume as before, also from one another's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsdp_migrate

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for path in (Path(__file__).parent / "fsdp2_programs").iterdir() if path.is_dir())
# Clipping by norm sums in another order.
MOST = 1e-6
OF_FSDP1 = ("FullyShardedDataParallel", "FSDP.", "FSDP(", "state_dict_type", "StateDictConfig", "clip_grad_norm_(max")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """The folder with what becomes of each program."""
    folders = {program: tmp_path_factory.mktemp("after") for program in PROGRAMS}
    for program, folder in folders.items():
        texts = {path: path.read_bytes() for path in program.rglob("*.py")}
        found = fsdp_migrate.plan(program, ">=2.13", target="fsdp2", unsafe_fixes=True)
        assert [one for one in found.findings if one.code == "FSDP900"] == []
        texts.update((Path(one.path), one.after) for one in found.changes)
        for path, text in texts.items():
            copy = folder / path.relative_to(program)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(text)
    return folders


@pytest.fixture(scope="module")
def results(converted: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the comparisons of all programs gave, all from one launch; those that failed come as lines of their own."""
    words = [(str(program), str(after), str(tmp_path_factory.mktemp("work"))) for program, after in converted.items()]
    command = [sys.executable, "-m", "tests.verify.converted_programs", *(word for three in words for word in three)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and line != "{}"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_converted_program_does_the_same(program: Path, results: list[dict[str, Any]]) -> None:
    assert [result["error"] for result in results if "error" in result] == []
    own = [result for result in results if result["program"] == str(program)]
    assert len(own) == 4
    for result in own:
        assert max(value for key, value in result.items() if key not in ("program", "case")) <= MOST, result


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_nothing_of_fsdp1_is_left(program: Path, converted: dict[Path, Path]) -> None:
    texts = {path.name: path.read_text() for path in converted[program].rglob("*.py") if path.name != "fsdp2.py"}
    assert [(name, word) for name, text in texts.items() for word in OF_FSDP1 if word in text] == []
