"""Merges what was recorded of each release into one table, and writes it.

`fsdp_migrate/torch_api/data.py` describes the format.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.wheel_api.facts import Fact

Table = dict[str, dict[str, Any]]

_COLUMNS = ("kind", "module", "signature", "value", "target", "bases", "deprecated", "deprecated_parameters")


def merged(releases: Sequence[str], found: Mapping[str, Mapping[str, Fact]]) -> Table:
    """One row a name, from the facts of each release; what a row says holds for ranges of releases."""
    names = sorted({name for facts in found.values() for name in facts})
    return {name: _row(releases, [found[release].get(name) for release in releases]) for name in names}


def _row(releases: Sequence[str], facts: Sequence[Fact | None]) -> dict[str, Any]:
    there = [number for number, fact in enumerate(facts) if fact is not None]
    row: dict[str, Any] = {"in": _ranges(releases, there)}
    for column in _COLUMNS:
        values = [(number, (facts[number] or {}).get(column)) for number in there]
        runs = dict(_runs(releases, values))
        if len(runs) == 1 and all(value is not None for _, value in values):
            runs = {"": next(iter(runs.values()))}
        if runs:
            row[column] = runs
    optional = [number for number in there if (facts[number] or {}).get("optional")]
    if optional:
        row["optional"] = _ranges(releases, optional)
    foreign = dict(_foreign(releases, facts))
    if foreign:
        row["foreign"] = foreign
    instance = sorted({name for fact in facts for name in (fact or {}).get("instance", ())})
    if instance:
        row["instance"] = " ".join(instance)
    return row


def _runs(releases: Sequence[str], values: Iterable[tuple[int, Any]]) -> Iterator[tuple[str, Any]]:
    """The values that are not None, by the range of releases in which each holds.

    Releases that are not among `values` do not end a range.
    """
    run: list[int] = []
    held: Any = None
    for number, value in [*values, (len(releases), ...)]:
        if value == held:
            run.append(number)
            continue
        if held is not None:
            yield _range(releases, run[0], run[-1]), held
        run, held = [number], value


def _ranges(releases: Sequence[str], numbers: Sequence[int]) -> str:
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(_range(releases, start, end) for start, end in zip(starts, ends))


def _range(releases: Sequence[str], start: int, end: int) -> str:
    return f"{releases[start]}-{releases[end] if end < len(releases) - 1 else ''}"


def _foreign(releases: Sequence[str], facts: Sequence[Fact | None]) -> Iterator[tuple[str, str]]:
    by_name: dict[str, list[int]] = {}
    for number, fact in enumerate(facts):
        for name in (fact or {}).get("foreign", ()):
            by_name.setdefault(name, []).append(number)
    by_range: dict[str, list[str]] = {}
    for name, numbers in sorted(by_name.items()):
        by_range.setdefault(_ranges(releases, numbers), []).append(name)
    for span, names in sorted(by_range.items()):
        yield span, " ".join(names)


def write(path: Path, releases: Sequence[str], table: Table) -> None:
    """Write the table as compressed JSON, one name a line, so that two tables can be compared line by line."""
    lines = [f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in sorted(table.items())]
    head = f'{{"releases": {json.dumps(" ".join(releases))}, "names": {{\n'
    text = head + ",\n".join(lines) + "\n}}\n"
    # Without a time stamp and a file name, the same table always gives the same bytes.
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
