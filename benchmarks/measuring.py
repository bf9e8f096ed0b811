"""Running commands and taking their cpu seconds, wall time and peak memory, those of their own children included."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """What to run and where; `prepare` is called before each run and is not counted.

    `most` is for a command that takes minutes: how many runs to make of it at most.
    """

    words: Sequence[str]
    folder: Path | None = None
    prepare: Callable[[], object] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None


@dataclass(frozen=True)
class Cost:
    """Medians: cpu and wall seconds, and the peak memory of the largest process in MB."""

    cpu: float
    wall: float
    memory: float
    runs: int


class Failed(Exception):
    """A command could not be run; the message is one line."""


def measured(commands: Mapping[str, Command], runs: int) -> dict[str, Cost]:
    """The cost of each command, all of them in turn, so that whatever else the machine does hits them alike.

    Raises:
        Failed: a command ended with a status that does not mean "findings".
    """
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            if command.most is None or number < command.most:
                cost = _once(command)
                # The first round fills the caches of the operating system, unless there is but one.
                if number or command.most is not None:
                    taken[name].append(cost)
    return {
        name: Cost(*(statistics.median(column) for column in zip(*costs)), runs=len(costs))
        for name, costs in taken.items()
    }


def _once(command: Command) -> tuple[float, float, float]:
    command.prepare()
    start = time.perf_counter()
    process = subprocess.Popen(
        command.words,
        cwd=command.folder,
        # Variables for Python may point to other modules than those installed, or keep it from using compiled ones.
        env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process.stderr as errors:
        told = errors.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise Failed(
            f"{' '.join(command.words[:6])} ended with {process.returncode}: {told.decode(errors='replace')[-300:]}"
        )
    return usage.ru_utime + usage.ru_stime, wall, _megabytes(usage)


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1024 * 1024 if os.uname().sysname == "Darwin" else 1024)
