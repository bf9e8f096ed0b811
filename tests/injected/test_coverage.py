"""Which lines of a program ran, in all threads, on this Python's own way of following them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fsdp_migrate

PROGRAM = """\
import threading

def called(x):
    if x:
        return 1
    return 2

def never():
    return 3

called(1)
thread = threading.Thread(target=called, args=(0,))
thread.start()
thread.join()
"""
RUN = """\
import runpy, sys, types
from fsdp_migrate.injected.recorder import coverage
journal = types.SimpleNamespace(plan=types.SimpleNamespace(copy=sys.argv[1]), event=lambda kind, files: print(files))
coverage.start(journal, {"program.py": [5, 6, 9, 11]})
runpy.run_path(sys.argv[1] + "/program.py")
coverage.record_lines(journal)
coverage.record_lines(journal)
"""


def test_lines_that_ran_are_told_once_and_others_never(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    root = str(Path(fsdp_migrate.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{'program.py': [5, 6, 11]}\n"
