"""Seeing calls of Python functions, and lines that run, without another object in the place of any.

Since Python 3.12 `sys.monitoring` does it. Before, a function gets new code in place: that of its own source with a
call in front, so that it stays the same object with the same signature and no more frames. Lines are seen since 3.12.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

# Under this name the builtins hold what the new code calls.
_HOOK = "__fsdp_migrate_called__"


class Unseen(Exception):
    """Calls of a function cannot be seen. The message says why."""


def watching(called: Callable[[CodeType, FrameType], None]) -> ByMonitoring | ByNewCode:
    """What sees calls, and tells them to `called` with the code and the frame of the function."""
    monitoring: Any = getattr(sys, "monitoring", None)
    # The numbers that have no use of their own in Python's documentation come first.
    free = (n for n in (4, 3, 2, 5, 1, 0) if monitoring is not None and monitoring.get_tool(n) is None)
    tool = next(free, None)
    return ByNewCode(called) if tool is None else ByMonitoring(called, monitoring, tool)


class ByMonitoring:
    """By `sys.monitoring`."""

    def __init__(self, called: Callable[[CodeType, FrameType], None], monitoring: Any, tool: int) -> None:
        """`tool` is a free number for a tool."""
        self._called = called
        self._monitoring = monitoring
        self._tool = tool
        self._watched: set[CodeType] = set()
        self._is_own: Callable[[str], bool] = lambda file: False
        self._events = monitoring.events
        monitoring.use_tool_id(tool, "fsdp-migrate")
        monitoring.register_callback(tool, self._events.PY_START, self._started)

    def see_calls(self, function: FunctionType) -> CodeType:
        """See the calls of a function from now on; gives its code."""
        code = function.__code__
        self._watched.add(code)
        self._monitoring.set_local_events(self._tool, code, self._events.PY_START)
        return code

    def see_lines(self, is_own: Callable[[str], bool], ran: Callable[[str, int], None]) -> bool:
        """Tell `ran` each line that runs, once, of files that are their `own`; gives whether that is possible."""
        self._is_own = is_own

        def line_ran(code: CodeType, line: int) -> object:
            ran(code.co_filename, line)
            return self._monitoring.DISABLE

        self._monitoring.register_callback(self._tool, self._events.LINE, line_ran)
        self._monitoring.set_events(self._tool, self._events.PY_START)
        return True

    def _started(self, code: CodeType, _offset: int) -> object:
        if code in self._watched:
            self._called(code, sys._getframe(1))
            return None
        # Every other function is asked about once.
        if self._is_own(code.co_filename):
            self._monitoring.set_local_events(self._tool, code, self._events.LINE)
        return self._monitoring.DISABLE


class ByNewCode:
    """By code that calls a function first."""

    def __init__(self, called: Callable[[CodeType, FrameType], None]) -> None:
        import builtins

        setattr(builtins, _HOOK, self._hook)
        self._called = called

    def see_calls(self, function: FunctionType) -> CodeType:
        """See the calls of a function from now on; gives its code.

        Raises:
            Unseen: its source is not there.
        """
        from .new_code import with_call

        try:
            function.__code__ = with_call(function.__code__, _HOOK)
        except (OSError, SyntaxError, ValueError, LookupError) as error:
            raise Unseen(f"its source cannot be used: {error}") from None
        return function.__code__

    def see_lines(self, is_own: Callable[[str], bool], ran: Callable[[str, int], None]) -> bool:
        """Nothing: it takes Python 3.12."""
        return False

    def _hook(self) -> None:
        frame = sys._getframe(1)
        self._called(frame.f_code, frame)
