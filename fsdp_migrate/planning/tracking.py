"""Finds a finding of one pass again in the next, so that it keeps the place where it was first seen."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate

from fsdp_migrate.findings import Finding
from fsdp_migrate.source import Replacement


def first_seen(
    before: Sequence[tuple[Finding, Finding]], replacements: Sequence[Replacement], after: Iterable[Finding]
) -> list[tuple[Finding, Finding]]:
    """Pairs each finding of the new text with its first form, or with itself if it is new.

    `before` are the pairs of the old text, without those that were fixed. In unchanged text a finding is identified by
    its place, elsewhere by its code and order.
    """
    found = list(after)
    places = shifted([finding.span.start for finding, _ in before], replacements)
    by_place = {(pair[0].code, place): number for number, (pair, place) in enumerate(zip(before, places))}
    known = [by_place.pop((finding.code, finding.span.start), None) for finding in found]
    waiting: defaultdict[str, deque[Finding]] = defaultdict(deque)
    for number in sorted(set(range(len(before))).difference(known)):
        waiting[before[number][0].code].append(before[number][1])
    pairs = []
    for finding, seen in zip(found, known):
        if seen is not None:
            pairs.append((finding, before[seen][1]))
        else:
            in_order = waiting[finding.code]
            pairs.append((finding, in_order.popleft() if in_order else finding))
    return pairs


def shifted(offsets: Iterable[int], replacements: Iterable[Replacement]) -> list[int | None]:
    """The offsets of the old text in the new one, None for replaced text."""
    ordered = sorted(replacements)
    ends = [span.end for span, _, _ in ordered]
    growth = (len(text.encode()) - (span.end - span.start) for span, text, _ in ordered)
    shifts = [0, *accumulate(growth)]
    places: list[int | None] = []
    for offset in offsets:
        number = bisect_right(ends, offset)
        replaced = number < len(ordered) and ordered[number].span.start <= offset
        places.append(None if replaced else offset + shifts[number])
    return places
