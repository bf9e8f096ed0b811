"""What a trace says of one file, asked by places in its text."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.trace import records
from fsdp_migrate.trace.records import Call, Trace, TraceError
from fsdp_migrate.workspace.disk import contents, digest

if TYPE_CHECKING:
    from fsdp_migrate.findings import Finding


class Observed:
    """The traces that a run was given, as far as the files are as they were."""

    def __init__(self, files: Iterable[str], folder: str) -> None:
        """Load them for the repository around `folder`.

        Raises:
            TraceError: one cannot be used.
        """
        self.root = records.root_of(folder)
        self._files = tuple(files)
        whole = records.merged(map(self._load, self._files))
        self.trace, self.changed = records.current(whole, self.root)
        self.left_out = len(whole.calls) - len(self.trace.calls)
        self._calls: dict[str, list[Call]] = {}
        for call in self.trace.calls:
            if call.place is not None:
                self._calls.setdefault(call.place.path, []).append(call)

    def _load(self, file: str) -> Trace:
        trace = records.load(file)
        if trace.files and not any(os.path.lexists(os.path.join(self.root, path)) for path in trace.files):
            some = ", ".join(sorted(trace.files)[:2])
            raise TraceError(f"{file}: this trace is of another repository: {self.root} has none of its files ({some})")
        return trace

    @cached_property
    def key(self) -> str:
        """What stands for all of it in the key of a cache."""
        return " ".join([*(digest(contents(file)) for file in self._files), *self.changed])

    def calls_in(self, path: str) -> bool:
        """Whether a file called what rules speak of."""
        return bool(self._calls.get(self._relative(path)))

    def calls_of(self, paths: Iterable[str]) -> int:
        """How many places of calls some files have."""
        return sum(len(self._calls.get(path, ())) for path in set(map(self._relative, paths)))

    def seen(self, path: str, raw: bytes) -> Seen | None:
        """What was seen of a file with these bytes; None where nothing is known of it."""
        relative = self._relative(path)
        known = self.trace.files.get(relative)
        if relative in self.changed or relative.startswith("../") or (known is not None and known != digest(raw)):
            return None
        lines = self.trace.lines.get(relative, frozenset())
        return Seen(self._calls.get(relative, ()), lines, sees_lines=self.trace.sees_lines)

    def _relative(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(path), self.root).replace(os.sep, "/")


class Seen:
    """What was seen of one file: its calls, and the lines that ran, which are all of them if it `sees_lines`."""

    def __init__(self, calls: Collection[Call], lines: frozenset[int], *, sees_lines: bool) -> None:
        self.calls = calls
        self._lines = lines
        self._sees_lines = sees_lines

    def called(self, call: ast.Call, api: str) -> bool:
        """Whether a call in the text was one of the function, at least once."""
        return any(True for _ in self._at(call, api))

    def optimizer(self, call: ast.Call, api: str) -> tuple[str, str] | None:
        """A name that the optimizer of the model had wherever the call was seen, and its type."""
        found = [one.optimizers for one in self._at(call, api)]
        if not found or any(one is None or len(one) != 1 for one in found):
            return None
        first, *others = ((*one,)[0] for one in found if one is not None)
        names = [name for name in first.names if all(name in other.names for other in others)]
        # A local name reads best.
        best = min(names, key=lambda name: (name.count("."), name), default=None)
        return None if best is None else (best, first.type)

    def _at(self, call: ast.Call, api: str) -> Iterator[Call]:
        return (one for one in self.calls if one.by is None and same_function(one.api, api) and is_at(one, call))

    def ran(self, finding: Finding) -> bool | None:
        """Whether the code of a finding ran; None where nobody looked."""
        if finding.by_run:
            return True
        wanted = range(finding.line, finding.end_line + 1)
        if any(line in self._known for line in wanted):
            return True
        return False if self._sees_lines else None

    @cached_property
    def _known(self) -> frozenset[int]:
        """The lines that certainly ran."""
        places = (call.place for call in self.calls if call.place is not None)
        spans = ((place.span or (place.line, 0, place.line, 0)) for place in places)
        # A span may be of a whole `with`; its first line ran.
        return self._lines.union(span[0] for span in spans)


def same_function(seen: str, api: str) -> bool:
    """Whether a function of a trace is one that rules name by its class, wherever that is defined."""
    return seen == api or seen.split(".")[-2:] == api.split(".")[-2:]


def is_at(seen: Call, call: ast.Call) -> bool:
    """Whether a call of a trace is this one in the text; without its span, one of this name in the line."""
    assert seen.place is not None
    span = seen.place.span
    if span is not None:
        # For a method whose name is in another line Python moves the start there; a statement around starts earlier.
        return (call.end_lineno, call.end_col_offset) == span[2:] and (call.lineno, call.col_offset) <= span[:2]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    inside = call.lineno <= seen.place.line <= (call.end_lineno or call.lineno)
    return inside and name == seen.api.rpartition(".")[2]
