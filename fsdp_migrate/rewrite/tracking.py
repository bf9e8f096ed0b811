"""Which finding of a pass is which of the pass before, so that each keeps the place where it was first seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsdp_migrate.findings import Finding
from fsdp_migrate.rewrite.splicing import Replacement


def first_seen(
    before: Sequence[tuple[Finding, Finding]], replacements: Sequence[Replacement], after: Iterable[Finding]
) -> list[tuple[Finding, Finding]]:
    """Pair each finding of the new text with the finding it was when it was first reported (itself, if it is new).

    `before` are such pairs for the old text, without those that were fixed. A finding in text that did not change
    is known by its place, another by its code and the order in which it occurs.
    """
    waiting = list(before)
    found = list(after)
    origins: dict[int, Finding] = {}
    places = {(pair[0].code, moved(pair[0].span.start, replacements)): pair for pair in before}
    for number, finding in enumerate(found):
        pair = places.pop((finding.code, finding.span.start), None)
        if pair is not None:
            origins[number] = pair[1]
            waiting.remove(pair)
    for number, finding in enumerate(found):
        if number not in origins:
            pair = next((pair for pair in waiting if pair[0].code == finding.code), None)
            if pair is not None:
                origins[number] = pair[1]
                waiting.remove(pair)
    return [(finding, origins.get(number, finding)) for number, finding in enumerate(found)]


def moved(offset: int, replacements: Iterable[Replacement]) -> int | None:
    """Where an offset of the old text is in the new one, None if its text was replaced."""
    shift = 0
    for span, text, _ in replacements:
        if span.start <= offset < span.end:
            return None
        if span.end <= offset:
            shift += len(text.encode()) - (span.end - span.start)
    return offset + shift
