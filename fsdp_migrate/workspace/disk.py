"""Reads files without blocking on pipes and devices, and finds the leftovers of killed runs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator

# How a file is called for the moment between being written and taking the place of another.
PREFIX, SUFFIX = ".fsdp-migrate-", ".tmp"

READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def contents(path: str) -> bytes:
    """The bytes of a regular file.

    Raises:
        OSError: it cannot be read, or is no regular file: a pipe would never end, nor would some devices.
    """
    try:
        descriptor = os.open(path, READING)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, "not a regular file") from None
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        pieces = []
        while piece := os.read(descriptor, max(status.st_size + 1, 1 << 16)):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def digest(raw: bytes) -> str:
    """A digest of a file's contents, to compare them with those of another time."""
    import hashlib  # most runs compare nothing

    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def leftovers(folder: str, names: Iterable[str]) -> Iterator[str]:
    """The files in `folder` that only a killed run can have left there."""
    for name in names:
        if name.startswith(PREFIX) and name.endswith(SUFFIX):
            yield os.path.join(folder, name)
