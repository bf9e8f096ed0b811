from __future__ import annotations

import importlib.util
import io
import stat
import sys
from pathlib import Path

import pytest

from fsdp_migrate.verify import RunSettings, run
from fsdp_migrate.verify.lanes import LaneError, probe


def interpreter(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """This Python without any installed package."""
    return interpreter(tmp_path / "bare", f'exec "{sys.executable}" -I -S "$@"')


def test_a_python_without_torch_is_told_in_one_line(bare: str) -> None:
    with pytest.raises(LaneError) as caught:
        probe(bare)
    assert str(caught.value) == f"{bare}: torch is not installed; give one that has torch"


def test_this_python_without_torch_says_what_to_install(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", bare)
    out, err = io.StringIO(), io.StringIO()
    assert run(RunSettings(), out=out, err=err) == 2
    assert out.getvalue() == ""
    assert err.getvalue() == f"error: {bare}: torch is not installed; pip install torch numpy\n"


def test_something_that_is_no_python_is_told_in_one_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(LaneError, match="missing: cannot be run: "):
        probe(missing)
    with pytest.raises(LaneError, match=r"broken: is it a Python interpreter.* it said: out of order"):
        probe(interpreter(tmp_path / "broken", "echo out of order >&2; exit 1"))


def test_a_relative_path_is_kept_for_other_folders_and_a_name_alone_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = '{"torch": "2.9.1", "gpus": 0, "python": [3, 11]}'
    path = interpreter(tmp_path / "python-2.9", f"echo '{found}'")
    monkeypatch.chdir(tmp_path)
    assert probe("./python-2.9").python == path
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe("python-2.9").python == "python-2.9"


def test_gpus_that_are_not_there_are_told_in_one_line() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    lane = probe(device="cuda")
    if lane.gpus:
        pytest.skip("this machine has a GPU")
    err = io.StringIO()
    assert run(RunSettings(device="cuda"), keyword="plain-statement", out=io.StringIO(), err=err) == 2
    assert err.getvalue() == f"error: {sys.executable}: its torch {lane.torch} sees no GPU; use --device cpu\n"


def test_a_keyword_that_matches_nothing_is_told_in_one_line() -> None:
    err = io.StringIO()
    assert run(RunSettings(), keyword="no-such-fixture", out=io.StringIO(), err=err) == 2
    assert err.getvalue() == "error: no fixture matches 'no-such-fixture'; without -k all of them run\n"
