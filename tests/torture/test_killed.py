"""A rewrite of many files that is ended in the middle of it leaves each of them whole: old or new."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.torture.programs import COMMAND, ENVIRONMENT, LEGACY, run

ENDINGS = [("SIGKILL", -9, 500), ("SIGTERM", -15, 60), ("SIGINT", 130, 120)]


def new_text(folder: Path) -> str:
    """What rewriting makes of every file."""
    (folder / "one.py").write_text(LEGACY)
    assert run(folder, "rewrite", "one.py").returncode == 0
    return (folder / "one.py").read_text()


def told_as_written(said: str) -> list[str]:
    """The files that stderr names as written; what it says besides has to fit."""
    lines = said.splitlines()
    written = [line.removeprefix("written: ") for line in lines if line.startswith("written: ")]
    if lines:
        told = f"Interrupted: {len(written)} of 120 files written, each as a whole; the others did not change."
        assert lines[len(written) :] == [f"{told} Run again for the rest."]
    return written


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize(("ending", "code", "number"), ENDINGS)
def test_no_file_is_half_written_and_the_next_run_goes_on(tmp_path: Path, ending: str, code: int, number: int) -> None:
    new = new_text(tmp_path)
    root = tmp_path / "src"
    root.mkdir()
    paths = [root / f"m{number:03}.py" for number in range(number)]
    for path in paths:
        path.write_text(LEGACY)
    before: set[str] = set()
    for landmark in (paths[number // 5], paths[2 * number // 5]):
        process = subprocess.Popen(
            [*COMMAND, "rewrite", "src"], cwd=tmp_path, env=ENVIRONMENT, stdout=-3, stderr=subprocess.PIPE, text=True
        )
        with process:
            while landmark.read_text() == LEGACY and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(getattr(signal, ending))
            said = process.stderr.read() if process.stderr else ""
        texts = [path.read_text() for path in paths]
        assert process.returncode == code
        assert told_as_written(said) == (
            [f"src/{path.name}" for path, text in zip(paths, texts) if text == new and path.name not in before]
            if ending == "SIGINT"
            else []
        )
        assert set(texts) == {LEGACY, new}
        before = {path.name for path, text in zip(paths, texts) if text == new}
        beside = [path.name for path in root.iterdir() if path not in paths]
        # With SIGKILL there is an instant in which a file has its passing name already.
        assert beside == [] or (ending != "SIGINT" and all(name.startswith(".fsdp-migrate-") for name in beside))
    assert run(tmp_path, "rewrite", "src").returncode == 0
    assert {path.read_text() for path in paths} == {new}
    assert sorted(root.iterdir()) == paths
