"""Writing files such that none is ever half written; loaded only where something is written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsdp_migrate.workspace.disk import PREFIX, READING, SUFFIX, contents

_UNNAMED = getattr(os, "O_TMPFILE", None)
_OPEN_FILES = "/proc/self/fd"
# What systems say that have no files without names: the file system, an old kernel, or both.
_NO_UNNAMED = frozenset([errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT])


class ChangedError(Exception):
    """The file is not any more what it was when it was read."""


class _CannotBeNamed(Exception):
    """The system makes files without names but gives them none afterwards."""


def replace(target: str, new: bytes, old: bytes | None = None) -> None:
    """Make `new` the contents of the regular file `target`, whole or not at all, and if given only in place of `old`.

    The new file has the mode, the extended attributes and, where permitted, the owner of the one whose place it takes.
    Other hard links go on leading to the old one. Until `sync` is called for the folder, a system that loses its power
    may come back with the old contents.

    Raises:
        ChangedError: they are not `old` any more. The file is as it was, here and below.
        OSError: it cannot be written.
    """
    try:
        _replace(target, new, old, _UNNAMED is not None and os.path.isdir(_OPEN_FILES))
    except _CannotBeNamed:
        _replace(target, new, old, False)


def sync(folder: str) -> None:
    """Make what took another's place in `folder` durable where a folder can be synced."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def clear(paths: Iterable[str]) -> None:
    """Take `leftovers` away, apart from those that a run which is still alive has locked."""
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, READING | getattr(os, "O_NOFOLLOW", 0))
            try:
                if locked(descriptor):
                    os.unlink(path)
            finally:
                os.close(descriptor)


def _replace(target: str, new: bytes, old: bytes | None, unnamed: bool) -> None:
    with prepared(target, new, unnamed=unnamed) as file:
        if old is not None and contents(target) != old:
            raise ChangedError
        file.take_place_of(target)


@contextlib.contextmanager
def prepared(target: str, new: bytes, *, unnamed: bool = False, exists: bool = True) -> Iterator[NewFile]:
    """A file beside `target` that can take its place, written whole; gone afterwards unless it did.

    Where none `exists` at `target` yet, it has the mode that any new file gets.

    Raises:
        OSError: it cannot be written.
    """
    status = os.stat(target) if exists else None
    with _new_file(os.path.dirname(target), unnamed) as file:
        locked(file.descriptor)
        _write_all(file.descriptor, new)
        os.fsync(file.descriptor)
        if status is not None:
            _keep_attributes(file.descriptor, target)
            _keep_owner(file.descriptor, status)
        mode = _mode_of_new_files() if status is None else stat.S_IMODE(status.st_mode)
        os.chmod(file.descriptor if os.chmod in os.supports_fd else file.path, mode)
        yield file


def _mode_of_new_files() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@dataclass
class NewFile:
    """A file that is being written in `folder`; as long as it has no `path` it goes with the process."""

    folder: str
    descriptor: int
    path: str = ""

    def take_place_of(self, target: str) -> None:
        """Be what the name `target` leads to."""
        if not self.path:
            self._take_name()
        if sys.platform == "win32":
            self.close()  # else it could not be moved
        os.replace(self.path, target)

    def close(self) -> None:
        """Unlock the file and, if it has no name, let it go."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _take_name(self) -> None:
        name = f"{PREFIX}{os.urandom(8).hex()}{SUFFIX}"
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            # Only with a folder's descriptor does the link go to the file itself and not to its entry in /proc.
            os.link(f"{_OPEN_FILES}/{self.descriptor}", name, dst_dir_fd=folder, follow_symlinks=True)
        except OSError as error:
            raise _CannotBeNamed from error
        finally:
            os.close(folder)
        self.path = os.path.join(self.folder, name)


@contextlib.contextmanager
def _new_file(folder: str, unnamed: bool) -> Iterator[NewFile]:
    """A new file in `folder`, without a name where that is possible; gone afterwards unless it took another's place."""
    try:
        file = (_unnamed(folder) if unnamed else None) or _named(folder)
    except OSError as error:
        raise OSError(error.errno, f"no file can be created in its folder: {error.strerror}") from None
    try:
        yield file
    finally:
        file.close()
        if file.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)


def _unnamed(folder: str) -> NewFile | None:
    assert _UNNAMED is not None
    try:
        return NewFile(folder, os.open(folder, _UNNAMED | os.O_RDWR, 0o600))
    except OSError as error:
        if error.errno in _NO_UNNAMED:
            return None
        raise


def _named(folder: str) -> NewFile:
    import tempfile  # needed on some systems only

    descriptor, path = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX, dir=folder)
    return NewFile(folder, descriptor, path)


def _write_all(descriptor: int, raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def locked(descriptor: int) -> bool:
    """Lock a file for as long as it is open here; whether that went well (Windows lets nobody delete an open file)."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _keep_attributes(descriptor: int, target: str) -> None:
    """Access lists among them; what the file system does not take is left out."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for name in os.listxattr(target):
                with contextlib.suppress(OSError):
                    os.setxattr(descriptor, name, os.getxattr(target, name))


def _keep_owner(descriptor: int, wanted: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    have = os.fstat(descriptor)
    if have.st_uid != wanted.st_uid:
        with contextlib.suppress(PermissionError):
            os.chown(descriptor, wanted.st_uid, -1)
    if have.st_gid != wanted.st_gid:
        with contextlib.suppress(PermissionError):
            os.chown(descriptor, -1, wanted.st_gid)
