"""What a program started may outlive its rank, in a session of its own.

`python leftovers.py FOLDER MARK` waits until whoever started it is gone, and then ends the processes with that mark and
removes the folder: a parent that is killed cannot do it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path


def temporary_files(folder: Path) -> Path:
    """Where the programs of a launch write temporary files: its ranks, and who they start, have it as TMPDIR."""
    return folder / "tmp"


def kill_all(folder: Path) -> None:
    """Kill every process, but this one, that belongs to the launch in `folder`; only where there is a /proc."""
    kill_marked(f"TMPDIR={temporary_files(folder)}\0")


def kill_marked(mark: str) -> list[int]:
    """Kill every process, but this one, with an environment variable that begins with `mark`, and say which."""
    processes, killed = Path("/proc"), []
    for entry in processes.iterdir() if processes.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and f"\0{mark}".encode() in b"\0" + (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                killed.append(int(entry.name))
    return killed


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_marked(sys.argv[2])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
