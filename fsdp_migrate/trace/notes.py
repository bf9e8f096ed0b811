"""What the processes of a run noted, as `injected/tracer.py` writes it, becomes a trace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.trace.records import Call, Trace, call_of, merged


class Noted(NamedTuple):
    """A trace, with a line for each thing that makes it less than whole."""

    trace: Trace
    remarks: tuple[str, ...]


def gathered(folder: Path) -> Noted:
    """What all processes noted that used torch."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    processes = [_Process(path) for path in files]
    remarks = [remark for process in processes for remark in process.remarks()]
    return Noted(merged(process.trace() for process in processes), tuple(remarks))


class _Process:
    """The notes of one process."""

    def __init__(self, path: Path) -> None:
        self.number = path.name.partition("-")[0]
        self.skipped = 0
        self.notes = list(self._read(path))

    def _read(self, path: Path) -> Iterator[dict[str, Any]]:
        for line in path.read_bytes().splitlines():
            try:
                note = json.loads(line)
                note["e"].startswith  # noqa: B018 - it is a text
                yield note
            except (ValueError, LookupError, TypeError, AttributeError):  # cut off when the process was killed
                self.skipped += 1

    def _of(self, event: str) -> Iterator[dict[str, Any]]:
        return (note for note in self.notes if note["e"] == event)

    def remarks(self) -> Iterator[str]:
        """What is not whole."""
        if self.skipped:
            yield f"process {self.number}: {self.skipped} notes were cut off and are skipped"
        elif not any(self._of("end")) and any(self._of("call")):
            yield f"process {self.number}: it did not end by itself, and may have called more often than noted"
        for fault in self._of("fault"):
            what = f"{fault.get('what')} in {fault.get('where')}"
            yield f"process {self.number}: a bug in fsdp-migrate, please report it: {what}; some calls were not noted"

    def trace(self) -> Trace:
        """The notes as a trace."""
        started = next(self._of("start"), {})
        counts = {note.get("id"): note.get("count", 0) for note in self._of("count")}
        lines: dict[str, set[int]] = {}
        for note in self._of("lines"):
            lines.setdefault(note["path"], set()).update(note["lines"])
        calls: dict[Any, Call] = {}
        for note in self._of("call"):
            ranks = () if note["rank"] is None else (note["rank"],)
            call = call_of(note, max(counts.get(note["id"], 1), 1), ranks, lambda name: (str(name),))
            calls[call.key] = calls[call.key].plus(call) if call.key in calls else call
        return Trace(
            calls=tuple(calls.values()),
            files={note["path"]: note["digest"] for note in self._of("file")},
            lines={path: frozenset(numbers) for path, numbers in lines.items()},
            sees_lines=bool(started.get("lines")),
            processes=1,
            torch=(str(started.get("torch")),),
            unwatched={note["api"]: note["why"] for note in self._of("unwatched")},
        )


def reason_for_nothing(folder: Path, command: tuple[str, ...]) -> str:
    """Why a run left no trace, as far as can be told."""
    from fsdp_migrate.injected.tracer import STARTED

    if (folder / STARTED).exists():
        return "no process imported torch"
    flags = [
        part for part in command if part.startswith("-") and not part.startswith("--") and set(part[1:]) & set("ISE")
    ]
    if flags and Path(command[0]).name.startswith("python"):
        return (
            f"`{os.path.basename(command[0])} {flags[0]}` ignores PYTHONPATH, by which the tracer gets into a program"
        )
    return "no Python process read PYTHONPATH, by which the tracer gets into a program (as with -I, -E and -S)"
