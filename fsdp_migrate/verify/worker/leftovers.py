"""What a program started may outlive its rank, in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def temporary_files(folder: Path) -> Path:
    """Where the programs of a launch write temporary files: its ranks, and who they start, have it as TMPDIR."""
    return folder / "tmp"


def kill_all(folder: Path) -> None:
    """Kill every process, but this one, that belongs to the launch in `folder`; only where there is a /proc."""
    mark, processes = f"TMPDIR={temporary_files(folder)}".encode(), Path("/proc")
    for entry in processes.iterdir() if processes.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
