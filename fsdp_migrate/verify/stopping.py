"""Ending a run early, without leaving anything behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP = 5.0  # seconds a launcher gets to end its ranks before it is killed with all of them
# Windows has no SIGHUP.
_STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stoppable() -> Iterator[None]:
    """Clean up after SIGTERM, and when the terminal closes, as after Ctrl-C.

    A thread that is not the main one leaves signals alone.
    """

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Whoever started this with nohup wants it to outlive the terminal.
    heeded = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and every rank, politely first: elastic ranks have sessions of their own."""
    if process.stdin:
        process.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
