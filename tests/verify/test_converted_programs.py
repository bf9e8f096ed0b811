"""Whole programs that the target fsdp2 converts train, save and resume as before, also from one another's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fsdp_migrate

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for path in (Path(__file__).parent / "fsdp2_programs").iterdir() if path.is_dir())
# Clipping by norm sums in another order.
MOST = 1e-6
OF_FSDP1 = ("FullyShardedDataParallel", "FSDP.", "FSDP(", "state_dict_type", "StateDictConfig", "clip_grad_norm_(max")


def converted(program: Path, folder: Path) -> None:
    """Write what becomes of a program to a folder."""
    texts = {path: path.read_bytes() for path in program.rglob("*.py")}
    found = fsdp_migrate.plan(program, ">=2.13", target="fsdp2", unsafe_fixes=True)
    assert [one for one in found.findings if one.code == "FSDP900"] == []
    texts.update((Path(one.path), one.after) for one in found.changes)
    for path, text in texts.items():
        copy = folder / path.relative_to(program)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_converted_program_does_the_same(program: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    converted(program, after)
    command = [sys.executable, "-m", "tests.verify.converted_programs", str(program), str(after), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    results = [line for line in lines if line != {}]
    assert len(results) == 4, results
    for result in results:
        assert "error" not in result, result["error"]
        assert max(value for key, value in result.items() if key != "case") <= MOST, result


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_nothing_of_fsdp1_is_left(program: Path, tmp_path: Path) -> None:
    converted(program, tmp_path)
    texts = {path.name: path.read_text() for path in tmp_path.rglob("*.py") if path.name != "fsdp2.py"}
    assert [(name, word) for name, text in texts.items() for word in OF_FSDP1 if word in text] == []
