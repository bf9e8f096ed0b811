"""A text on its way through the passes. Its findings are found again in each pass, to keep their first place."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from fsdp_migrate.findings import Finding
from fsdp_migrate.source import Replacement, Source

if TYPE_CHECKING:
    from fsdp_migrate.transactions import NewText


class Draft:
    """A text between two passes, with the findings that were fixed. Each finding is paired with its first form."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.source: Source | None = None
        self.fixed: list[Finding] = []
        self.live: list[tuple[Finding, Finding]] = []
        self._waiting: list[tuple[Finding, Finding]] = []
        self._replacements: Sequence[Replacement] = ()

    def see(self, findings: Iterable[Finding]) -> None:
        """Note the findings of the text."""
        self.live = first_seen(self._waiting, self._replacements, findings)

    def change(self, new: NewText, fixed: Collection[Finding]) -> None:
        """Continue with another text, in which these findings are gone."""
        gone = set(fixed)
        self.fixed = [*self.fixed, *(origin for finding, origin in self.live if finding in gone)]
        self._waiting = [pair for pair in self.live if pair[0] not in gone]
        self.raw, self.source, self._replacements = new


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
