"""A progress bar on stderr, for runs of more than two seconds that somebody watches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_DELAY = 2.0
_INTERVAL = 0.1

Item = TypeVar("Item")


def wanted() -> bool:
    """Whether somebody watches: stderr is a terminal, and not that of a CI."""
    return sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"


class Progress:
    """The bar of one run, erased at its end. It has no thread, because the run forks processes."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _DELAY
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def follow(self, items: Iterable[Item], doing: str, total: int) -> Iterator[Item]:
        """The items, with a bar for what is done with them."""
        for number, item in enumerate(items):
            if time.monotonic() >= self._next:
                self._draw(doing, number, total)
            yield item

    def _draw(self, doing: str, done: int, total: int) -> None:
        self._bar = self._bar or _bar()
        (task,) = self._bar.task_ids
        self._bar.update(task, description=doing, completed=done, total=total)
        self._bar.start()
        self._bar.refresh()
        self._next = time.monotonic() + _INTERVAL


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("files"))
    console = Console(stderr=True)
    bar = Progress(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    bar.add_task("")
    return bar
