"""Which of some lines of the project ran."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from .journal import Journal

# Tools 0 to 2 and 5 have names of their own in `sys.monitoring`.
_TOOLS = (4, 3)

_running: Lines | None = None


class Lines:
    """The lines to look out for, by absolute path, and those of them that ran since the last look."""

    def __init__(self, copy: str, lines: dict[str, list[int]]) -> None:
        self._copy = copy
        self.left = {os.path.join(copy, path): set(numbers) for path, numbers in lines.items() if numbers}
        self._ran: dict[str, set[int]] = {}
        self._lock = threading.Lock()

    def ran(self, path: str, number: int) -> bool:
        """Note that a line ran; whether that is news."""
        left = self.left.get(path, set())
        if number not in left:
            return False
        with self._lock:
            left.discard(number)
            self._ran.setdefault(os.path.relpath(path, self._copy), set()).add(number)
            if not left:
                self.left.pop(path, None)
        return True

    def take(self) -> dict[str, list[int]]:
        """What ran since the last call."""
        with self._lock:
            taken, self._ran = self._ran, {}
        return {path: sorted(numbers) for path, numbers in taken.items()}


def start(journal: Journal, lines: dict[str, list[int]]) -> None:
    """Look out for `lines`, of each file in the copy."""
    global _running
    _running = Lines(journal.plan.copy, lines)
    if not _running.left:
        return
    if sys.version_info >= (3, 12):
        _monitor(_running)
    else:
        _trace(_running)


def record_lines(journal: Journal) -> None:
    """Record which lines ran since this was asked last."""
    ran = _running.take() if _running else {}
    if ran:
        journal.event("covered", files=ran)


def _monitor(lines: Lines) -> None:
    """Python 3.12 calls for each line of the files once, and for any other function once."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = next((number for number in _TOOLS if monitoring.get_tool(number) is None), None)
    if tool is None:
        return
    monitoring.use_tool_id(tool, "fsdp-migrate")
    events = monitoring.events

    def begins(code: CodeType, _: int) -> Any:
        if code.co_filename in lines.left:
            monitoring.set_local_events(tool, code, events.LINE)
        return monitoring.DISABLE

    def line(code: CodeType, number: int) -> Any:
        lines.ran(code.co_filename, number)
        return monitoring.DISABLE

    monitoring.register_callback(tool, events.PY_START, begins)
    monitoring.register_callback(tool, events.LINE, line)
    monitoring.set_events(tool, events.PY_START)


def _trace(lines: Lines) -> None:
    """Before 3.12 Python calls for each function; the trace ends when all lines ran."""

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and lines.ran(frame.f_code.co_filename, frame.f_lineno):
            _stop_when_done()
        return line

    def _stop_when_done() -> None:
        if not lines.left:
            threading.settrace(None)
            sys.settrace(None)

    left = lines.left

    def begins(frame: FrameType, _: str, __: Any) -> Any:
        return line if frame.f_code.co_filename in left else None

    threading.settrace(begins)
    sys.settrace(begins)
