"""Files beside the code, such as pyproject.toml: reading them, and naming them in messages."""

from __future__ import annotations

import os

from fsdp_migrate.workspace import disk
from fsdp_migrate.workspace.filesystem import printable


class FileFault(Exception):
    """A file beside the code cannot be read. The message is the reason."""


def read_bytes(path: str) -> bytes:
    """The bytes of a file.

    Raises:
        FileFault: the file cannot be read.
    """
    try:
        return disk.contents(path)
    except OSError as error:
        raise FileFault(error.strerror or str(error)) from None


def display(path: str) -> str:
    """`path` for messages: relative to the current folder if that is shorter, on one line."""
    try:
        return printable(min(os.path.relpath(path), path, key=len))
    except ValueError:  # another drive
        return printable(path)
