"""The processes of a run: which of them are ranks, where their output goes, and how they end."""

from __future__ import annotations

import atexit
import faulthandler
import functools
import json
import os
import sys
import time
import traceback
from types import TracebackType
from typing import Any

from .journal import Journal

# Set by a rank for the processes that it starts, which inherit what makes it a rank.
CLAIMED = "FSDP_MIGRATE_PROVE_RANK"


def claimed_rank() -> int | None:
    """The rank that this process is; None for a launcher, and for what a rank started."""
    rank = os.environ.get("RANK", "")
    if not rank.isdigit() or CLAIMED in os.environ:
        return None
    os.environ[CLAIMED] = rank
    return int(rank)


def redirect_output(folder: str, rank: int) -> None:
    """Send what this process and those it starts print into a file of the rank."""
    file = os.open(os.path.join(folder, f"output-{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


def dump_stacks_at(deadline: float, folder: str, rank: int) -> None:
    """Write the stacks of all threads into a file when the time of the run is over."""
    file = os.open(os.path.join(folder, f"stacks-{rank}.txt"), os.O_WRONLY | os.O_CREAT, 0o644)
    faulthandler.dump_traceback_later(max(1.0, deadline - time.time()), file=file)


def record_before_destroy(module: Any, journal: Journal) -> None:
    """Record what the program leaves before its process group goes, which that needs."""
    original = module.destroy_process_group

    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> Any:
        if journal.recording and group in (None, module.group.WORLD) and module.is_initialized():
            journal.before_end()
        return original(group)

    module.destroy_process_group = destroy_process_group


def report_ranks(module: Any, folder: str, journal: Journal | None = None) -> None:
    """Note it where a process that is no rank of the run joins a process group: the program starts its own ranks."""
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        if journal is None or not journal.active:
            with open(os.path.join(folder, "children.jsonl"), "a", encoding="utf-8") as file:
                file.write(json.dumps({"pid": os.getpid(), "argv": sys.argv}) + "\n")
        return original(*arguments, **named)

    module.init_process_group = init_process_group


def follow(journal: Journal) -> None:
    """Record how the process ends: with an error, or by itself."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        journal.error = kind.__name__
        told = "".join(traceback.format_exception(kind, error, trace))
        journal.event("error", at=_raised_at(journal, trace), type=kind.__name__, text=str(error), traceback=told)
        before(kind, error, trace)

    sys.excepthook = excepthook
    atexit.register(_leave, journal)
    leave_at_once = os._exit

    @functools.wraps(leave_at_once)
    def _exit(status: int) -> None:
        # A forked process has no journal that is active.
        if journal.active:
            if not status:
                journal.before_end()
            end(journal, "exit" if status else "finished", status)
        leave_at_once(status)

    os._exit = _exit  # type: ignore[assignment]


def _raised_at(journal: Journal, trace: TracebackType | None) -> list[Any] | None:
    """The innermost line of the project in a traceback."""
    inside = os.path.join(journal.plan.copy, "")
    found = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(inside):
            found = [name[len(inside) :], trace.tb_lineno]
        trace = trace.tb_next
    return found


def _leave(journal: Journal) -> None:
    # Where another hook took the place of ours, Python still remembers that an error ended the program.
    failed = journal.error is not None or hasattr(sys, "last_type")
    if not failed:
        journal.before_end()
    end(journal, "exit" if failed else "finished", int(failed))


def end(journal: Journal, reason: str, code: int) -> None:
    """Write the last lines of the record."""
    from .coverage import record_lines

    if journal.active:
        record_lines(journal)
        journal.event("end", flush=True, reason=reason, code=code)
        journal.stop()
