"""What the command starts with, and how it ends where nobody takes its output."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NOT_REPORTED = 2


class StreamError(Exception):
    """stdout or stderr cannot be written. It is no OSError: click and rich end a command on some of those."""


def main() -> NoReturn:
    """Run the command line; where stdout is full, or its reader has gone, one line says so."""
    # Most commands leave no garbage; those that may turn it on again.
    gc.disable()
    _open_streams()
    from fsdp_migrate.commands import cli

    try:
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except StreamError as error:
        _give_up(error)
    # Freeing objects one by one, for a system that takes all memory back, is a twentieth of a short run.
    os._exit(status if isinstance(status, int) else 0)


def _open_streams() -> None:
    """Give a stream that was closed before the start a place to go, before another file takes its number.

    Those that are open tell in their own way that they cannot be written.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
        elif mode == "w" and isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
            setattr(sys, name, _telling(stream, name))


class _Raw(io.FileIO):
    """A stream of the process, which `name` is for people."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._called = name

    def write(self, raw: ReadableBuffer) -> int:
        try:
            return super().write(raw)
        except OSError as error:
            raise StreamError(f"{self._called} cannot be written: {error.strerror}") from None


def _telling(stream: io.TextIOWrapper, name: str) -> io.TextIOWrapper:
    """The stream with an own way to tell that it cannot be written."""
    raw = _Raw(stream.fileno(), name)
    buffer = io.BufferedWriter(raw) if hasattr(stream.buffer, "raw") else raw
    return io.TextIOWrapper(
        buffer,  # as Python itself does where PYTHONUNBUFFERED is set
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _give_up(error: StreamError) -> NoReturn:
    """Say it in one line if stderr takes that, and end; what still waits to be written goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        sys.stderr.write(f"Error: {error}\n")
        sys.stderr.flush()
    except StreamError:
        os.dup2(nowhere, 2)
    sys.exit(_NOT_REPORTED)
