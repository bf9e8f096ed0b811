"""A trace: which calls of torch a run made, by which lines. It is merged from processes and runs, and kept as JSON.

Paths are relative to the project and have slashes. `files` are digests of what was run; what was recorded of a file
that is another one now is left out (`current`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace import disk
from fsdp_migrate.workspace.gitignore import parents_in_repository

FORMAT = 1
_MARK = "fsdp_migrate_trace"

T = TypeVar("T")


class TraceError(ValueError):
    """A trace that cannot be used. The message is one line for the user."""


class Place(NamedTuple):
    """Where the project called: `span` is the whole call, lines from 1 and columns in bytes from 0; None if unknown."""

    path: str
    line: int
    function: str
    span: tuple[int, int, int, int] | None = None


class Optimizer(NamedTuple):
    """An optimizer of the model, by the names that the caller has for it."""

    names: tuple[str, ...]
    type: str


class Call(NamedTuple):
    """Calls of one function by one line.

    `place` is None where no line of the project called. `by` is the line of a library that called, reached through the
    `place`. `given` are the types that the arguments had, without those that were their defaults. `optimizers` are
    None where none were looked for, and else what every call found.
    """

    api: str
    place: Place | None
    by: str | None
    times: int
    ranks: tuple[int, ...]
    given: Mapping[str, tuple[str, ...]]
    optimizers: tuple[Optimizer, ...] | None = None

    @property
    def key(self) -> tuple[str, Place | None, str | None]:
        """What calls have in common that are counted together."""
        return self.api, self.place, self.by

    def plus(self, other: Call) -> Call:
        """Both together."""
        names = self.given.keys() | other.given.keys()
        given = {n: tuple(sorted({*self.given.get(n, ()), *other.given.get(n, ())})) for n in sorted(names)}
        ranks = tuple(sorted({*self.ranks, *other.ranks}))
        optimizers = _common(self.optimizers, other.optimizers)
        return self._replace(times=self.times + other.times, ranks=ranks, given=given, optimizers=optimizers)


def _common(some: tuple[Optimizer, ...] | None, others: tuple[Optimizer, ...] | None) -> tuple[Optimizer, ...] | None:
    """The optimizers that both have, by the names that both have."""
    if some is None or others is None:
        return some if others is None else others
    if len(some) != 1 or len(others) != 1:
        return max(some, others, key=len) if min(len(some), len(others)) else ()
    names = tuple(name for name in some[0].names if name in others[0].names)
    return (Optimizer(names, some[0].type),) if names else ()


@dataclass(frozen=True)
class Trace:
    """What one or several runs were seen doing.

    `lines` are those of the files that ran, in files where that was looked at; `sees_lines` says that it was in every
    process. `unwatched` are functions whose calls could not be seen, and why.
    """

    calls: tuple[Call, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sees_lines: bool = True
    processes: int = 0
    torch: tuple[str, ...] = ()
    unwatched: Mapping[str, str] = field(default_factory=dict)

    def without(self, paths: Iterable[str]) -> Trace:
        """The trace without what was seen in some files."""
        gone = set(paths)
        return replace(
            self,
            calls=tuple(call for call in self.calls if call.place is None or call.place.path not in gone),
            files={path: digest for path, digest in self.files.items() if path not in gone},
            lines={path: lines for path, lines in self.lines.items() if path not in gone},
        )


def merged(traces: Iterable[Trace]) -> Trace:
    """The traces as one; of a file that changed between them the last one counts."""
    calls: dict[object, Call] = {}
    files: dict[str, str] = {}
    lines: dict[str, frozenset[int]] = {}
    parts = []
    for trace in traces:
        parts.append(trace)
        changed = {path for path, digest in trace.files.items() if files.get(path, digest) != digest}
        for key in [key for key, call in calls.items() if call.place and call.place.path in changed] if changed else ():
            del calls[key]
        for path in changed:
            lines.pop(path, None)
        for call in trace.calls:
            calls[call.key] = calls[call.key].plus(call) if call.key in calls else call
        for path, numbers in trace.lines.items():
            lines[path] = lines.get(path, frozenset()) | numbers
        files.update(trace.files)
    return Trace(
        calls=tuple(calls.values()),
        files=files,
        lines=lines,
        sees_lines=all(part.sees_lines for part in parts),
        processes=sum(part.processes for part in parts),
        torch=tuple(dict.fromkeys(version for part in parts for version in part.torch)),
        unwatched={name: why for part in parts for name, why in part.unwatched.items()},
    )


def document(trace: Trace) -> str:
    """The trace as JSON."""
    held = {
        _MARK: FORMAT,
        "torch": trace.torch,
        "processes": trace.processes,
        "sees_lines": trace.sees_lines,
        "files": dict(sorted(trace.files.items())),
        "lines": {path: sorted(lines) for path, lines in sorted(trace.lines.items())},
        "unwatched": dict(sorted(trace.unwatched.items())),
        "calls": [
            call._asdict()
            | {"place": None if call.place is None else call.place._asdict()}
            | {"optimizers": None if call.optimizers is None else [one._asdict() for one in call.optimizers]}
            for call in sorted(trace.calls, key=_order)
        ],
    }
    return json.dumps(held, separators=(",", ":")) + "\n"


def _order(call: Call) -> tuple[object, ...]:
    path, line, span = ("", 0, None) if call.place is None else (call.place.path, call.place.line, call.place.span)
    return path, line, span or (), call.api, call.by or ""


def load(path: str) -> Trace:
    """The trace in a file.

    Raises:
        TraceError: there is none that can be used.
    """
    try:
        held = json.loads(disk.contents(path))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise TraceError(f"{path}: this is not JSON: `fsdp-migrate trace -o {path} -- COMMAND` writes it") from None
    made = held.get(_MARK) if isinstance(held, dict) else None
    if made is None:
        raise TraceError(f"{path}: this is not a trace: `fsdp-migrate trace -o {path} -- COMMAND` writes one")
    if made != FORMAT:
        raise TraceError(f"{path}: the format {made} is not the one of this fsdp-migrate ({FORMAT}): record it again")
    try:
        return _read(held)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise TraceError(f"{path}: the trace is damaged: record it again") from None


def _read(held: dict[str, Any]) -> Trace:
    return Trace(
        calls=tuple(call_of(one, int(one["times"]), one["ranks"], _types) for one in held["calls"]),
        files={str(path): str(digest) for path, digest in held["files"].items()},
        lines={str(path): frozenset(map(int, lines)) for path, lines in held["lines"].items()},
        sees_lines=bool(held["sees_lines"]),
        processes=int(held["processes"]),
        torch=tuple(map(str, held["torch"])),
        unwatched={str(name): str(why) for name, why in held["unwatched"].items()},
    )


def _types(held: Any) -> tuple[str, ...]:
    return tuple(map(str, held))


def call_of(held: dict[str, Any], times: int, ranks: Iterable[int], types: Callable[[Any], tuple[str, ...]]) -> Call:
    """A call as JSON has it; `types` reads those of an argument."""
    place, optimizers, by = held["place"], held.get("optimizers"), held["by"]
    return Call(
        api=str(held["api"]),
        place=None if place is None else _place(place),
        by=None if by is None else str(by),
        times=times,
        ranks=tuple(map(int, ranks)),
        given={str(name): types(one) for name, one in held["given"].items()},
        optimizers=None
        if optimizers is None
        else tuple(Optimizer(_types(o["names"]), str(o["type"])) for o in optimizers),
    )


def _place(held: dict[str, Any]) -> Place:
    span = held.get("span")
    spanned = None if span is None else (int(span[0]), int(span[1]), int(span[2]), int(span[3]))
    return Place(str(held["path"]), int(held["line"]), str(held["function"]), spanned)


def root_of(folder: str) -> str:
    """The folder that the paths of a trace start at: the repository around a folder, or the folder if there is none."""
    real = os.path.realpath(folder)
    return next(iter(parents_in_repository(real)), real)


def current(trace: Trace, root: str) -> tuple[Trace, tuple[str, ...]]:
    """The trace without the files that are not as they were, and their paths."""
    changed = tuple(path for path, digest in trace.files.items() if _digest(os.path.join(root, path)) != digest)
    return trace.without(changed), changed


def _digest(path: str) -> str | None:
    try:
        return disk.digest(disk.contents(path))
    except OSError:
        return None
