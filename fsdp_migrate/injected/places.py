"""Whose line a frame is at: one of the project, of torch, of another library, or of Python's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from itertools import islice
from types import CodeType, FrameType
from typing import Any

_PACKAGES = ("site-packages", "dist-packages")
_HERE = os.path.dirname(os.path.abspath(__file__))


class Places:
    """The places of a project whose folder is `root`."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._cwd = os.getcwd()
        self._paths: dict[str, str | None] = {}
        self._passing: dict[str, bool] = {}
        self._python = [os.path.realpath(path) for path in {sys.prefix, sys.base_prefix, sys.exec_prefix}]
        self._standard = os.path.realpath(os.path.dirname(os.__file__)) + os.sep

    def own(self, file: str) -> str | None:
        """The path of a file relative to the project, with slashes; None if it is not of the project."""
        if file not in self._paths:
            self._paths[file] = self._own(file)
        return self._paths[file]

    def is_own(self, file: str) -> bool:
        """Whether a file is of the project."""
        return self.own(file) is not None

    def _own(self, file: str) -> str | None:
        if file.startswith("<"):
            return None
        real = os.path.realpath(os.path.join(self._cwd, file))
        inside = real.startswith(self.root.rstrip(os.sep) + os.sep) and os.path.isfile(real)
        if not inside or real.startswith(_HERE + os.sep):
            return None
        relative = os.path.relpath(real, self.root)
        parts = relative.split(os.sep)
        in_python = any(path.startswith(self.root + os.sep) and real.startswith(path + os.sep) for path in self._python)
        return None if in_python or any(name in parts for name in _PACKAGES) else "/".join(parts)

    def caller(self, frame: FrameType, wrappers: Container[CodeType]) -> FrameType | None:
        """The frame that called a function; None if that is torch itself.

        Decorators of the function, and what Python's own modules do in between, are passed over.
        """
        caller = frame.f_back
        while caller is not None and (caller.f_code in wrappers or self._passes(caller.f_code.co_filename)):
            caller = caller.f_back
        return None if caller is None or _is_of_torch(caller) else caller

    def _passes(self, file: str) -> bool:
        """Whether a file is one of Python's own modules, or of this tool."""
        if file not in self._passing:
            real = os.path.realpath(file)
            standard = real.startswith(self._standard) and not any(name in real.split(os.sep) for name in _PACKAGES)
            self._passing[file] = file.startswith("<frozen ") or standard or real.startswith(_HERE + os.sep)
        return self._passing[file]

    def of(self, caller: FrameType) -> tuple[dict[str, Any] | None, str | None]:
        """The place of the innermost line of the project from `caller` on, and the library that called if another did.

        The place is the span of the call, where Python knows it: lines from 1, columns in bytes from 0.
        """
        frame: FrameType | None = caller
        while frame is not None and not self.is_own(frame.f_code.co_filename):
            frame = frame.f_back
        by = None if frame is caller else f"{_short(caller.f_code.co_filename)}:{caller.f_lineno}"
        return None if frame is None else self._span(frame), by

    def _span(self, frame: FrameType) -> dict[str, Any]:
        place: dict[str, Any] = {"path": self.own(frame.f_code.co_filename), "line": frame.f_lineno}
        if sys.version_info >= (3, 11):
            line, end_line, column, end_column = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            if None not in (line, end_line, column, end_column):
                place |= {"span": [line, column, end_line, end_column]}
        return place | {"function": frame.f_code.co_name}


def _is_of_torch(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == "torch" or name.startswith("torch.")


def _short(file: str) -> str:
    """The path of a file of a library without the folder that it is installed in."""
    parts = file.replace(os.sep, "/").split("/")
    start = max((n + 1 for n, part in enumerate(parts) if part in _PACKAGES), default=len(parts) - 1)
    return "/".join(parts[start:])
