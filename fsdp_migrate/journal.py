"""Writing several files together: all of them or none, whatever ends the run in the middle of it.

The new texts are written beside the files, then a journal into each of their folders, which tells the old texts from
the new ones; then each new text takes its file's place. The next run that finds a journal finishes what it tells of, or
takes it back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from fsdp_migrate import replacing
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace import disk, filesystem
from fsdp_migrate.workspace.disk import PREFIX, READING, contents, digest
from fsdp_migrate.workspace.filesystem import FileError, SourceFile, printable

SUFFIX, OLD_SUFFIX = ".journal", ".old"

Tell = Callable[[str], None]


class Write(NamedTuple):
    """A file, what is to be in it, and what is in it now, None where there is no file yet."""

    file: SourceFile
    new: bytes
    old: bytes | None


class NotWritten(Exception):
    """None of the files was written, because of one of them; the message is for the user."""

    def __init__(self, file: SourceFile, message: str) -> None:
        super().__init__(message)
        self.file = file


class _HalfWritten(NotWritten):
    """Some of the files were written, and cannot be put back."""


class _Entry(NamedTuple):
    """A file of a journal: where it is, where its new and its old text are, and what tells them apart.

    `old` is empty where there was no file.
    """

    target: str
    new_file: str
    old_file: str
    new: str
    old: str

    @property
    def state(self) -> str:
        """The digest of what is there now."""
        try:
            return digest(contents(self.target))
        except OSError:
            return ""

    def take_back(self) -> None:
        """Put the old text back."""
        if self.old:
            os.replace(self.old_file, self.target)
        else:
            os.unlink(self.target)

    @property
    def has_old(self) -> bool:
        """Whether the old text is there to be put back."""
        return not self.old or _holds(self.old_file, self.old)


def write_together(writes: Sequence[Write], tell: Tell) -> None:
    """Write all of these files or none of them.

    A signal that would end the run waits until they are all as they were, or all new; `tell` gets a line on which.

    Raises:
        NotWritten: one of them changed since it was read, or cannot be written. All are as they were.
    """
    names = _listed(write.file.shown for write in writes)
    with _signals_wait() as signals, contextlib.ExitStack() as stack:
        new_files = [_prepared(write, stack) for write in writes]
        if signals:
            tell(f"interrupted: {names} did not change")
            return
        name = f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}"
        entries = [entry for _, entry in new_files]
        journals = {os.path.join(os.path.dirname(e.target), name): write.file for e, write in zip(entries, writes)}
        try:
            for path, file in journals.items():
                with _about(file):
                    stack.enter_context(_journal(path, entries))
            _put_in_place(writes, new_files)
        except _HalfWritten:
            tell(f"the change to {names} can neither be finished nor rolled back: the next rewrite tries again")
            raise
        except BaseException:
            _clear([*(entry.old_file for entry in entries), *journals])
            raise
        _clear([*(entry.old_file for entry in entries), *journals])
        if signals:
            tell(f"interrupted: the change to {names} was finished")


def _prepared(write: Write, stack: contextlib.ExitStack) -> tuple[replacing.NewFile, _Entry]:
    """Write a new text beside its file."""
    with _about(write.file):
        target = filesystem.writable(write.file)
        new_file = stack.enter_context(replacing.prepared(target, write.new, exists=write.old is not None))
        _check_unchanged(target, write)
        kept = new_file.path.removesuffix(disk.SUFFIX) + OLD_SUFFIX
        old = "" if write.old is None else digest(write.old)
        return new_file, _Entry(target, new_file.path, kept, digest(write.new), old)


def _check_unchanged(target: str, write: Write) -> None:
    """Let a file pass that is as it was read.

    Raises:
        ChangedError: it is not.
    """
    if os.path.lexists(target) if write.old is None else contents(target) != write.old:
        raise replacing.ChangedError


def _put_in_place(writes: Sequence[Write], new_files: Sequence[tuple[replacing.NewFile, _Entry]]) -> None:
    """Rename the new files; if one cannot be, all are put back.

    Raises:
        NotWritten: that is so.
    """
    done: list[_Entry] = []
    try:
        for write, (_, entry) in zip(writes, new_files):
            with _about(write.file):
                if write.old is not None:
                    _keep(entry.target, entry.old_file)
        for write, (new_file, entry) in zip(writes, new_files):
            with _about(write.file):
                _check_unchanged(entry.target, write)
                new_file.take_place_of(entry.target)
                done.append(entry)
        for folder in {os.path.dirname(entry.target) for entry in done}:
            replacing.sync(folder)
    except BaseException as error:
        try:
            for entry in reversed(done):
                entry.take_back()
        except OSError:
            raise _HalfWritten(writes[len(done)].file, str(error)) from None
        raise


def _keep(target: str, name: str) -> None:
    """Give what is at `target` a second name, or copy it where files have only one."""
    try:
        os.link(target, name)
    except OSError:
        with replacing.prepared(target, contents(target)) as copy:
            copy.take_place_of(name)


@contextlib.contextmanager
def _about(file: SourceFile) -> Iterator[None]:
    """Say that it is because of `file` that none is written."""
    try:
        with filesystem.unwritten():
            yield
    except FileError as error:
        raise NotWritten(file, str(error)) from None


@contextlib.contextmanager
def _journal(path: str, entries: Sequence[_Entry]) -> Iterator[None]:
    """A journal at `path`, locked for as long as this run needs it."""
    folder = os.path.dirname(path)
    rows = [[*(os.path.relpath(name, folder) for name in entry[:3]), entry.new, entry.old] for entry in entries]
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        replacing.locked(descriptor)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stream:
            json.dump({"version": 1, "files": rows}, stream)
        os.fsync(descriptor)
        replacing.sync(folder)
        yield
    finally:
        os.close(descriptor)


def recover(folders: Collection[str], tell: Tell) -> None:
    """Finish what an earlier run that was killed began in one of these folders, or take it back."""
    for folder in sorted(folders):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name.startswith(PREFIX) and name.endswith(SUFFIX):
                    _recover(os.path.join(folder, name), tell)


def _recover(path: str, tell: Tell) -> None:
    try:
        descriptor = os.open(path, READING | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return  # The journal of another folder told the same.
    try:
        if replacing.locked(descriptor):
            entries = _read(path)
            journals = {os.path.join(os.path.dirname(entry.target), os.path.basename(path)) for entry in entries}
            if entries and all(map(os.path.isfile, journals)):
                tell(_settled(entries))
            _clear([*(name for entry in entries for name in entry[1:3]), *journals, path])
    except OSError as error:
        tell(f"{printable(path)}: the change of an earlier run cannot be finished: {error.strerror or error}")
    finally:
        os.close(descriptor)


def _settled(entries: Sequence[_Entry]) -> str:
    """Finish if every file is as it was before or after, else take back what was done; gives a line that says so."""
    names = _listed(os.path.relpath(entry.target) for entry in entries)
    states = [entry.state for entry in entries]
    waiting = [entry for entry, state in zip(entries, states) if state != entry.new]
    if all(entry.state == entry.old and _holds(entry.new_file, entry.new) for entry in waiting):
        for entry in waiting:
            os.replace(entry.new_file, entry.target)
        return f"finished the change to {names}, which a killed run had begun"
    for entry, state in zip(entries, states):
        if state == entry.new and entry.has_old:
            entry.take_back()
    return f"rolled back the change to {names}, which a killed run had begun"


def _holds(path: str, wanted: str) -> bool:
    return os.path.isfile(path) and digest(contents(path)) == wanted


def _read(path: str) -> list[_Entry]:
    """What a journal tells; nothing of one that was not written to its end, or names files in places of their own."""
    folder = os.path.dirname(path)
    try:
        document: Any = json.loads(contents(path).decode("utf-8", "surrogateescape"))
        entries = []
        for *names, new, old in document["files"] if document["version"] == 1 else ():
            target, new_file, old_file = (os.path.normpath(os.path.join(folder, name)) for name in names)
            entries.append(_Entry(target, new_file, old_file, new, old))
    except (ValueError, TypeError, LookupError):
        return []
    sound = all(_is_sound(entry) for entry in entries)
    return entries if sound else []


def _is_sound(entry: _Entry) -> bool:
    """Whether the texts of an entry are beside its file, under names that only a run gives."""
    folder = os.path.dirname(entry.target)
    beside = (os.path.split(name) for name in (entry.new_file, entry.old_file))
    return all(where == folder and name.startswith(PREFIX) for where, name in beside)


def _clear(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _listed(names: Iterable[str]) -> str:
    *most, last = map(printable, names)
    return f"{', '.join(most)} and {last}" if most else last


@contextlib.contextmanager
def _signals_wait() -> Iterator[list[int]]:
    """Hold back the signals that end a run; gives those that came, which are sent again afterwards."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)
