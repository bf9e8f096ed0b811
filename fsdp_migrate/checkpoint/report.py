"""A checkpoint as text, and as JSON for other programs; `SCHEMA_VERSION` rises when a field changes its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from fsdp_migrate.checkpoint.contents import Contents, Written
from fsdp_migrate.checkpoint.layout import Part, parts
from fsdp_migrate.checkpoint.readers import readers

SCHEMA_VERSION = 1
_SHOWN = 4  # names in a line; JSON has them all


def size(nbytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.{0 if unit == 'B' else 1}f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def lines(contents: Contents) -> Iterator[str]:
    """What there is, part by part."""
    found = list(parts(contents))
    yield f"{contents.path}: {contents.format.value}, {size(contents.nbytes)} of tensors"
    written = _written(contents, found)
    if written:
        first, last = _range(written)
        since = f"{first} to {last}" if last else f"{first} or newer"
        yield f"  written by torch {since} ({'; '.join(clue.because for clue in written)})"
    if contents.foreign:
        yield f"  refused by weights_only=True: its pickles name {_few(contents.foreign)}"
    for part in found:
        by = f", by {part.keys.value}" if part.keys else ""
        yield f"  {part.name}: {part.kind.value}, {part.layout.value}{by}; {part.tensors} tensors, {size(part.nbytes)}"
        if part.prefixes:
            counts = (f"`{prefix}` in {count} of {len(part.names)}" for prefix, count in part.prefixes.items())
            yield f"    names: {', '.join(counts)}"
        for group in part.shared:
            yield f"    one tensor: {_few(group)}"
        answer = readers(part, contents.format)
        yield from (f"    read by: {reader}" for reader in answer.reads)
        yield from (f"    not read by: {reader}" for reader in answer.not_)
        yield from (f"    beware: {hazard}" for hazard in answer.hazards)
    if not found:
        yield "  no model and no optimizer found"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def document(contents: Contents) -> str:
    """The same as JSON."""
    found = list(parts(contents))
    written = _written(contents, found)
    first, last = _range(written) if written else (None, None)
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "path": contents.path,
            "format": contents.format.name.lower(),
            "bytes": contents.nbytes,
            "torch": {"first": first, "last": last, "because": [clue.because for clue in written]},
            "refused_by_weights_only": contents.foreign,
            "parts": [_part(part, contents) for part in found],
        },
        indent=2,
    )


def _part(part: Part, contents: Contents) -> dict[str, object]:
    answer = readers(part, contents.format)
    return {
        "path": [key if isinstance(key, (str, int)) else str(key) for key in part.path],
        "kind": part.kind.value,
        "layout": part.layout.value,
        "keys": part.keys.value if part.keys else None,
        "names": list(part.names),
        "tensors": part.tensors,
        "bytes": part.nbytes,
        "prefixes": part.prefixes,
        "shared": [list(group) for group in part.shared],
        "read_by": list(answer.reads),
        "not_read_by": list(answer.not_),
        "beware": list(answer.hazards),
    }


def _written(contents: Contents, found: list[Part]) -> list[Written]:
    return list(dict.fromkeys([*contents.written, *(clue for part in found for clue in part.written)]))


def _range(written: list[Written]) -> tuple[str, str | None]:
    def number(release: str) -> tuple[int, ...]:
        return tuple(map(int, release.split(".")))

    lasts = [clue.last for clue in written if clue.last]
    return max((clue.first for clue in written), key=number), min(lasts, key=number, default=None)
