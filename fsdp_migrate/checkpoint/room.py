"""Memory and disk: what a conversion needs, and what is free."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from fsdp_migrate.checkpoint.contents import CheckpointError
from fsdp_migrate.checkpoint.report import size


def claim(memory: int, disk: int, folder: str) -> str:
    """What is needed and what is free, in one line.

    Raises:
        CheckpointError: less is free.
    """
    free_memory, free_disk = _free_memory(), shutil.disk_usage(folder).free
    told = f"{size(memory)} of memory ({size(free_memory) if free_memory is not None else 'unknown'} free)"
    told = f"needs {told} and {size(disk)} on disk ({size(free_disk)} free)"
    if disk > free_disk or (free_memory is not None and memory > free_memory):
        raise CheckpointError(told)
    return told


def _free_memory() -> int | None:
    """What the system, and the container's limit, leave; None where that cannot be told."""
    free = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError, KeyError):
        group = Path("/sys/fs/cgroup")
        used = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = int(used["active_file"]) + int(used["inactive_file"])
        free.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()) + cached)
    if not free:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            free.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(free, default=None)
