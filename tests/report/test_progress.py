"""How far a run is: drawn on a terminal alone, and only where a run takes long."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_process import ENVIRONMENT, LEGACY

# As the command starts, with a clock that is a thousand times too fast.
HURRIED = """
import sys, time
clock = time.monotonic
time.monotonic = lambda: clock() * 1000
from fsdp_migrate.start import main
main()
"""
STARTED = "from fsdp_migrate.start import main; main()"


def told(folder: Path, program: str, *arguments: str, **environment: str) -> str:
    """What stderr gets as a terminal; stdout gets what it gets without one."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    kept = {name: value for name, value in ENVIRONMENT.items() if name not in ("CI", "NO_COLOR", "TERM")}
    variables = kept | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=follower, env=variables) as process:
        os.close(follower)
        output = b""
        try:
            while piece := os.read(leader, 65536):
                output += piece
        except OSError:  # how Linux says that the other side is closed
            pass
        assert process.stdout is not None
        shown = process.stdout.read()
    os.close(leader)
    plain = subprocess.run([sys.executable, "-c", STARTED, *arguments], cwd=folder, env=kept, capture_output=True)
    assert (process.returncode, shown) == (plain.returncode, plain.stdout)
    return output.decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for number in range(12):
        (tmp_path / f"m{number}.py").write_text(LEGACY)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        ("lint --no-cache --jobs 1", "Checking"),
        ("lint --no-cache --jobs 2", "Checking"),
        ("rewrite --check", "Rewriting"),
    ],
)
def test_a_terminal_shows_how_far_a_long_run_is_until_it_ends(project: Path, command: str, doing: str) -> None:
    output = told(project, HURRIED, *command.split())
    counts = [int(count) for count in re.findall(doing + r" .*?(\d+)/12\x1b\[0m files", output)]
    assert counts[0] < max(counts) > 6
    assert output.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, and the line is gone


@pytest.mark.parametrize(
    ("program", "arguments", "environment"),
    [
        (STARTED, [], {}),
        (HURRIED, ["-q"], {}),
        (HURRIED, [], {"CI": "true"}),
        (HURRIED, [], {"TERM": "dumb"}),
    ],
    ids=["short", "quiet", "ci", "dumb"],
)
def test_nothing_is_drawn_where_nobody_waits(
    project: Path, program: str, arguments: list[str], environment: dict[str, str]
) -> None:
    assert told(project, program, "lint", "--no-cache", *arguments, **environment) == ""


def test_nothing_is_drawn_into_a_pipe(project: Path) -> None:
    command = [sys.executable, "-c", HURRIED, "lint", "--no-cache"]
    assert subprocess.run(command, cwd=project, env=ENVIRONMENT, capture_output=True).stderr == b""
