"""All ranks of one machine on its CPU: torch is imported once, then every rank is forked off.

Halves the cost of a launch, and makes resuming after a crash nearly free. CUDA cannot be forked; see `rank`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from . import leftovers, protocol, workarounds
from .kinds import c10d
from .loop import run_plan
from .model import Network, make_optimizer
from .protocol import LaunchPlan

GRACE = 3.0  # seconds between asking a rank to end (it dumps its stacks) and killing it


def main(plan_file: str) -> None:
    """Run the plan, forking a new set of ranks as long as points are left and the last set made headway."""
    torch.set_num_threads(1)
    plan = LaunchPlan.read(plan_file)
    folder = Path(plan.folder)
    notes = workarounds.install()
    protocol.append(protocol.hello_file(folder), {"torch": torch.__version__, "workarounds": notes})
    _warm_up()
    for attempt in range(len(plan.points) + 1):
        started = protocol.started(folder, plan.world)
        finished = _Round(plan, folder / f"store{attempt}").run()
        if finished or protocol.started(folder, plan.world) == started:
            break


def _warm_up() -> None:
    """Import what torch imports on first use, and exempt it all from the ranks' garbage collections."""
    # No backward pass here: autograd refuses to run after a fork that follows one.
    make_optimizer("AdamW", Network()).step()
    gc.collect()
    gc.freeze()


class _Round:
    """One set of ranks, from fork to exit."""

    def __init__(self, plan: LaunchPlan, store: Path) -> None:
        self._plan = plan
        self._store = store
        self._children: dict[int, int] = {}
        self._deadline: float | None = None
        self._folder = Path(plan.folder)
        self._told = (0, time.monotonic())

    def run(self) -> bool:
        """Whether every rank came to the end of the plan."""
        try:
            for rank in range(self._plan.world):
                self._children[self._fork(rank)] = rank
            while self._children:
                self._step()
        finally:
            self._signal(signal.SIGKILL)
        return self._deadline is None

    def _step(self) -> None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            self._ended(self._children.pop(pid), os.waitstatus_to_exitcode(status))
        elif self._deadline is not None and time.monotonic() > self._deadline:
            self._signal(signal.SIGKILL)
        elif self._deadline is None and self._quiet():
            self._stop()
        elif _parent_is_gone():
            leftovers.kill_all(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SystemExit(1)

    def _ended(self, rank: int, code: int) -> None:
        why = protocol.take_leaving(self._folder, rank)
        if why == protocol.FINISHED:
            return
        asked = self._deadline is not None
        protocol.note_exit(self._folder, rank, code, asked=asked, abandoned=why == protocol.ABANDONED)
        if not asked:
            self._stop()

    def _stop(self) -> None:
        self._deadline = time.monotonic() + GRACE
        self._signal(signal.SIGTERM)

    def _quiet(self) -> bool:
        """Whether no rank has told anything for longer than its own alarm clock, which a program can stop, allows."""
        files = [protocol.record_file(self._folder, rank) for rank in range(self._plan.world)]
        told = sum(file.stat().st_size for file in files if file.is_file())
        if told != self._told[0]:
            self._told = (told, time.monotonic())
        return time.monotonic() - self._told[1] > self._plan.timeout + 2 * self._plan.group_timeout

    def _signal(self, number: int) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _fork(self, rank: int) -> int:
        """Start one rank; returns its process id in the parent and never in the child."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            store = c10d.FileStore(str(self._store), self._plan.world)
            run_plan(self._plan, store, rank, rank, self._plan.world)
            protocol.note_leaving(self._folder, rank, protocol.FINISHED)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _parent_is_gone() -> bool:
    """Wait a moment; the parent holds our standard input open for as long as it lives."""
    ready, _, _ = select.select([0], [], [], 0.02)
    return bool(ready) and os.read(0, 1) == b""
