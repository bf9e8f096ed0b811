"""Running rules on one module, each at most once and only where it can find something."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS
from fsdp_migrate.scan.needles import Haystack, Written
from fsdp_migrate.scan.written_names import Vocabulary
from fsdp_migrate.source import is_beside

# The rule about copies of torch's FSDP class.
COPIES = "FSDP305"
# Parts of names that are written in nearly every file that a rule looks at.
_COMMON = {"torch", "distributed", "fsdp", "tensor", "checkpoint"}

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.findings import Finding
    from fsdp_migrate.rules.entry import Entry


def findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds in the module."""
    return facts.memo((findings_of, entry.code, entry.module), lambda: _findings_of(facts, entry))


def _findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    return unasked(facts, entry) if in_copies(entry) or facts.fsdp.copied_class is None else ()


def in_copies(entry: Entry) -> bool:
    """Whether the rule speaks in a copy of torch's FSDP class too: it is about that, or about no FSDP."""
    return entry.scope not in ("fsdp", "near", "models") or entry.code == COPIES


def unasked(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds, whether it is silent in this module or not."""
    if is_beside(facts.path):
        return _found(facts, entry) if entry.is_beside(facts.written) else ()
    changed = entry.names is None and facts.memo(_changed, lambda: _writes_changed(facts))
    if not changed and not _may_speak(facts, entry):
        return ()
    return _found(facts, entry)


def _found(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    rule = entry.load()
    return tuple(rule.check(facts, rule.card))


def _writes_changed(facts: ModuleFacts) -> bool:
    return _changed(facts.newest_only).is_written(facts.written)


def _may_speak(facts: ModuleFacts, entry: Entry) -> bool:
    text = facts.memo(Written, lambda: Written(facts.written))
    if entry.scope == "everywhere" or not _parts(entry).isdisjoint(text.words):
        return True
    return (entry.code, entry.module) in facts.memo(_needles, lambda: _needles(facts.hints).found(text))


@cache
def _needles(hints: bool) -> Haystack[tuple[str, str]]:
    every = (*ENTRIES, *(entry for entries in OF_TARGETS.values() for entry in entries))
    return Haystack((needles, (one.code, one.module)) for one in every for needles in one.needles(hints))


@cache
def _parts(entry: Entry) -> frozenset[bytes]:
    """Few words one of which is written wherever one of the rule's names is."""
    left = {name: set(name.split(".")) - _COMMON for name in entry.names or ()}
    chosen = set[str]()
    while left:
        counts = Counter(part for parts in left.values() for part in parts)
        best = max(counts, key=lambda part: (counts[part], len(part), part))
        chosen.add(best)
        left = {name: parts for name, parts in left.items() if best not in parts}
    return frozenset(part.encode() for part in chosen)


@cache
def _changed(newest_only: bool) -> Vocabulary:
    from fsdp_migrate.rules.changed_names import OBJECTS, names_asked

    return Vocabulary(names_asked(newest_only), OBJECTS)
