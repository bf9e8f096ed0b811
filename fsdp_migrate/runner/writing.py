"""Writing the files of a run, so that one that is interrupted can say which it wrote."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import NamedTuple

from fsdp_migrate import files
from fsdp_migrate.files import FileError, SourceFile


class Interrupted(Exception):
    """The run was interrupted: the files `written`, as reports show them, are whole; all others are as they were."""

    def __init__(self, written: tuple[str, ...], files: int) -> None:
        """`files` is how many the run was to look at."""
        super().__init__()
        self.written = written
        self.files = files


class _Pending(NamedTuple):
    file: SourceFile
    new: bytes


class Writing:
    """Writes files one by one, and makes them durable at the end, however it comes."""

    def __init__(self, files: int) -> None:
        """`files` is how many the run looks at."""
        self.files = files
        self.written: list[str] = []
        self._folders: list[str] = []
        self._pending: _Pending | None = None

    def write(self, file: SourceFile, new: bytes, old: bytes) -> None:
        """As `files.write`.

        Raises:
            FileError: the file cannot be written.
        """
        self._pending = _Pending(file, new)
        self._folders.append(files.write(file, new, old))
        self.written.append(file.shown)
        self._pending = None

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Make what was written durable.

        Raises:
            Interrupted: the run was.
        """
        if isinstance(error, KeyboardInterrupt):
            self._finish()
        files.sync(self._folders)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(tuple(self.written), self.files) from None

    def _finish(self) -> None:
        """Find out whether the file that was being written is: the interrupt may have come just after that."""
        if self._pending is None or self._pending.file.shown in self.written:
            return
        file, new = self._pending
        with contextlib.suppress(FileError):
            if files.read(file) == new:
                self._folders.append(os.path.dirname(os.path.realpath(file.path)))
                self.written.append(file.shown)
