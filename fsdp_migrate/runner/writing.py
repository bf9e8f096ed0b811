"""Writes the changes of a plan to disk: one file by one rename, files that change together through a journal.

If the run is interrupted, it reports the files that it wrote.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from fsdp_migrate import journal, replacing
from fsdp_migrate.journal import NotWritten, Write
from fsdp_migrate.planning.parts import Part
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.filesystem import FileError, SourceFile

if TYPE_CHECKING:
    from fsdp_migrate.planning.planner import Planner
    from fsdp_migrate.workspace.workspace import Workspace


class Interrupted(Exception):
    """The run was interrupted. The files `written` are complete; all others are as they were."""

    def __init__(self, written: tuple[str, ...], files: int) -> None:
        """`files` is the number of files in the run."""
        super().__init__()
        self.written = written
        self.files = files


class Writing:
    """Writes files one by one, and makes them durable at the end, even after an error."""

    def __init__(self, files: int) -> None:
        """`files` is the number of files in the run."""
        self.files = files
        self.written: list[str] = []
        self._folders: list[str] = []
        self._pending: list[Write] = []

    def write(self, file: SourceFile, new: bytes, old: bytes) -> None:
        """As `filesystem.write`.

        Raises:
            FileError: the file cannot be written.
        """
        self._pending = [Write(file, new, old)]
        self._folders.append(filesystem.write(file, new, old))
        self._pending_are_written()

    def write_together(self, writes: list[Write], tell: Callable[[str], None]) -> None:
        """As `journal.write_together`.

        Raises:
            NotWritten: one of the files cannot be written, so none was.
        """
        self._pending = writes
        journal.write_together(writes, tell)
        self._pending_are_written()

    def _pending_are_written(self) -> None:
        self.written += [write.file.shown for write in self._pending]
        self._pending = []

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Make what was written durable.

        Raises:
            Interrupted: the run was.
        """
        if isinstance(error, KeyboardInterrupt):
            self._finish()
        filesystem.sync(self._folders)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(tuple(self.written), self.files) from None

    def _finish(self) -> None:
        """Find out whether the last file was written: the interrupt may have come just after the rename."""
        for file, new, _ in self._pending:
            with contextlib.suppress(FileError):
                if file.shown not in self.written and filesystem.read(file) == new:
                    self._folders.append(os.path.dirname(os.path.realpath(file.path)))
                    self.written.append(file.shown)


class Committing:
    """Writes the parts of a plan as they come, after repairing what an earlier run left unfinished."""

    def __init__(self, workspace: Workspace, writing: Writing, tell: Callable[[str], None]) -> None:
        self._workspace = workspace
        self._writing = writing
        self._tell = tell
        self._without: dict[str, str] = {}
        discovery = workspace.discovery
        named = {os.path.dirname(os.path.realpath(file.path)) for file in discovery.files if file.raw is None}
        journal.recover(named, tell)
        replacing.clear(discovery.leftovers)

    def parts(self, part: Part, planner: Planner) -> Iterator[Part]:
        """Write a part; returns what became of it, in smaller parts if it could not be written as a whole."""
        changing = [(one.file, one.change) for one in part.files]
        writes = [
            Write(file, change.after, None if change.created else change.before)
            for file, change in changing
            if change is not None
        ]
        for write in writes:
            if write.old is not None:
                self._workspace.pin(write.file, write.old)
        try:
            if len(writes) == 1 and writes[0].old is not None:
                self._written_alone(writes[0].file, writes[0].new, writes[0].old)
            elif writes:
                self._writing.write_together(writes, self._tell)
        except NotWritten as error:
            if len(part.files) == 1:
                yield part._replace(files=(part.files[0]._replace(failure=str(error)),))
                return
            self._without[error.file.shown] = str(error)
            for made in part.files:  # the others are planned again
                if made.created and made.file == error.file:
                    yield Part((made._replace(failure=str(error)),))
            for smaller in planner.again(part, self._without):
                yield from self.parts(smaller, planner)
        else:
            yield part

    def _written_alone(self, file: SourceFile, new: bytes, old: bytes) -> None:
        try:
            self._writing.write(file, new, old)
        except FileError as error:
            raise NotWritten(file, str(error)) from None
