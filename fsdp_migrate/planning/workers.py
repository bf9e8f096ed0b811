"""Several processes for linting. If one dies, the file that it worked on is reported."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

# Below this many bytes to parse for each process, starting it takes longer than it saves.
_WORTH = 1_000_000


class WorkerDied(Exception):
    """A process ended before its task was done. The message is one line for the user."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: int


def count(jobs: int | None, amount: int) -> int:
    """The number of processes for `amount` bytes: `jobs` if given, otherwise as many as are worth it."""
    if not hasattr(os, "fork"):
        return 1
    if jobs is not None:
        return jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, amount // _WORTH))


def results(
    function: Callable[[Any], Any], tasks: Sequence[Any], processes: int
) -> Iterator[tuple[int, Any | WorkerDied]]:
    """The number and the result of each task, as they finish; `WorkerDied` if its process died.

    `function` must not raise. The processes are forks of this one.
    """
    waiting = list(range(len(tasks)))[::-1]
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                workers.append(_started(function, tasks, waiting.pop()))
            ready = wait([worker.connection for worker in workers])
            for worker in [one for one in workers if one.connection in ready]:
                try:
                    result = worker.connection.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    yield worker.task, _death(worker)
                    continue
                done = worker.task
                if waiting:
                    worker.task = waiting.pop()
                    _send(worker, worker.task)
                else:
                    _send(worker, None)
                    workers.remove(worker)
                    worker.process.join()
                yield done, result
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _started(function: Callable[[Any], Any], tasks: Sequence[Any], task: int) -> _Worker:
    context = get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(function, tasks, there, here), daemon=True)
    process.start()
    there.close()
    worker = _Worker(process, here, task)
    _send(worker, task)
    return worker


def _send(worker: _Worker, task: int | None) -> None:
    with contextlib.suppress(OSError):  # it has died, which receiving from it tells
        worker.connection.send(task)


def _work(function: Callable[[Any], Any], tasks: Sequence[Any], connection: Connection, other: Connection) -> None:
    """The loop of a process: it takes tasks until there are none, or the parent is gone."""
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its children
    with contextlib.suppress(EOFError, OSError):
        while (task := connection.recv()) is not None:
            connection.send(function(tasks[task]))


def _death(worker: _Worker) -> WorkerDied:
    worker.process.join()
    code = worker.process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    return WorkerDied(f"not checked: its worker process {how}")
