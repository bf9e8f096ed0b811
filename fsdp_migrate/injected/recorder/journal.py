"""The record of a rank: one line in JSON for each event, in the order of the program."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .plan import Plan

FORMAT = 1
FAULTS = 20  # told of a rank; more of them tell nothing new
Function = TypeVar("Function", bound=Callable[..., Any])


class Journal:
    """Takes the events of one rank.

    `steps` is the number of optimizer steps taken. While `quiet` is set, what the recorder itself does is not recorded.
    `before_end` records what the program leaves, once it came to its end.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan = plan
        self.rank = rank
        self.steps = 0
        self.quiet = False
        self.active = True
        self.error: str | None = None
        self.before_end: Callable[[], object] = lambda: None
        self._inside = os.path.join(plan.copy, "")
        self._lines: list[str] = []
        self._number = self._faults = 0
        self._lock = threading.RLock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(os.path.join(plan.folder, f"rank-{rank}.jsonl"), flags, 0o644)
        self._started = False
        # A forked process is not the rank, although it has its memory.
        os.register_at_fork(after_in_child=self.stop)

    @property
    def recording(self) -> bool:
        """Whether what happens now belongs into the record."""
        return self.active and not self.quiet

    def stop(self) -> None:
        """Write nothing any more."""
        self.active = False
        self._lock = threading.RLock()  # a thread that a fork left behind may have held it
        self._lines.clear()

    def event(self, kind: str, /, *, flush: bool = False, at: list[Any] | None = None, **about: Any) -> None:
        """Add an event; with `flush` the system has it before this returns."""
        if not self.active:
            return
        place = at or self.place()
        with self._lock:
            self._number += 1
            head = {"e": kind, "n": self._number + 1, "step": self.steps}
            self._lines.append(json.dumps({**head, **({"at": place} if place else {}), **about}) + "\n")
            if flush:
                self.flush()

    def flush(self) -> None:
        """Hand all events to the system."""
        with self._lock:
            if self._lines and self.active:
                if not self._started:
                    self._started = True
                    self._lines.insert(0, self._start())
                os.write(self._file, "".join(self._lines).encode("utf-8", "backslashreplace"))
                self._lines.clear()

    def _start(self) -> str:
        torch = sys.modules.get("torch")
        about = {
            "format": FORMAT,
            "rank": self.rank,
            "world": int(os.environ.get("WORLD_SIZE", "1")),
            "pid": os.getpid(),
            "argv": sys.argv,
            "torch": getattr(torch, "__version__", None) and str(torch.__version__),  # type: ignore[union-attr]
            "deterministic": self.plan.deterministic,
            "cuda": hasattr(torch, "cuda") and torch.cuda.is_initialized(),  # type: ignore[union-attr]
        }
        return json.dumps({"e": "start", "n": 1, "step": 0, **about}) + "\n"

    def place(self) -> list[Any] | None:
        """The innermost line of the project that runs, as its path in the copy and its number."""
        frame = sys._getframe(1)
        inside = self._inside
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(inside):
                return [name[len(inside) :], frame.f_lineno]
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def fault(self, where: str, error: Exception | str) -> None:
        """Note that the recorder itself failed somewhere: then the record proves nothing."""
        self._faults += 1
        if self._faults <= FAULTS:
            text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            self.event("fault", flush=True, where=where, text=text[:1000])

    def guarded(self, where: str) -> Callable[[Function], Function]:
        """A decorator: the function runs only while there is a record, and an error in it becomes a fault."""

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def run(*arguments: Any, **named: Any) -> Any:
                if not self.recording:
                    return None
                # Whatever fails here must not reach the user's program.
                try:
                    return function(*arguments, **named)
                except Exception as error:
                    self.fault(where, error)
                    return None

            return run  # type: ignore[return-value]

        return decorate
