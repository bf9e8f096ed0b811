"""Running rules on one module, each at most once and only where it can find something."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.scan.words import found_by
from fsdp_migrate.scan.written_names import Vocabulary

# Stands for all names that changed, in the place of a mark.
_CHANGED = ""
# The rule about copies of torch's FSDP class.
COPIES = "FSDP305"
# Shorter marks are written in many files; the others are looked for together once a run has come to so many modules,
# since making the patterns takes as long as looking for each by itself in some twenty.
_LONG = 8
_MANY = 30
_modules = itertools.count()

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.findings import Finding
    from fsdp_migrate.rules.entry import Entry


def findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds in the module."""
    return facts.memo((findings_of, entry.code), lambda: _findings_of(facts, entry))


def _findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    return unasked(facts, entry) if in_copies(entry) or facts.fsdp.copied_class is None else ()


def in_copies(entry: Entry) -> bool:
    """Whether the rule speaks in a copy of torch's FSDP class too: it is about that, or about no FSDP."""
    return entry.neighbour or entry.everywhere or entry.code == COPIES


def unasked(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds, whether it is silent in this module or not."""
    if not may_find(entry, facts.written, facts.memo(may_find, lambda: _known_marks(facts.written))):
        return ()
    rule = entry.load()
    return tuple(rule.check(facts, rule.card))


def may_find(entry: Entry, data: bytes, known: dict[str, bool] | None = None) -> bool:
    """Whether the rule can find something in a module with this text, taken by itself.

    `known` remembers which marks the text has.
    """
    known = {} if known is None else known
    for mark in entry.marks:
        if mark not in known:
            known[mark] = mark.encode() in data
        if known[mark]:
            return True
    if entry.changed:
        if _CHANGED not in known:
            known[_CHANGED] = _changed().is_written(data)
        return known[_CHANGED]
    return entry.everywhere


def _known_marks(data: bytes) -> dict[str, bool]:
    return long_marks(data) if next(_modules) >= _MANY else {}


def long_marks(data: bytes) -> dict[str, bool]:
    """Which of the longer marks a text has; it is searched a few times for all of them."""
    marks, patterns = _long_marks()
    reach = max(map(len, marks))
    # One match may hide others that overlap it, but none that does not stand around it.
    around = b"\n".join(
        data[max(0, match.start() - reach) : match.end() + reach]
        for pattern in patterns
        for match in pattern.finditer(data)
    )
    return {mark: mark.encode() in around for mark in marks} if around else dict.fromkeys(marks, False)


@cache
def _long_marks() -> tuple[tuple[str, ...], list[re.Pattern[bytes]]]:
    """The longer marks that a pattern can be made for, and the patterns."""
    marks = dict.fromkeys(mark for entry in ENTRIES for mark in entry.marks if len(mark) >= _LONG)
    patterns, left = found_by([mark.encode() for mark in marks])
    return tuple(mark for mark in marks if mark.encode() not in left), patterns


@cache
def _changed() -> Vocabulary:
    from fsdp_migrate.rules.changed_names import changed_names

    return Vocabulary(changed_names())
