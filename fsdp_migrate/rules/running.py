"""Running rules on one module, each at most once and only where it can find something."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.scan.written_names import Vocabulary
from fsdp_migrate.source import is_beside

# The rule about copies of torch's FSDP class.
COPIES = "FSDP305"
# Parts of names that are written in nearly every file that a rule looks at.
_COMMON = {"torch", "distributed", "fsdp", "tensor", "checkpoint"}

_WORDS = re.compile(rb"[\w\x80-\xff]+")

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
    return entry.scope not in ("fsdp", "near") or entry.code == COPIES


def unasked(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds, whether it is silent in this module or not."""
    if is_beside(facts.path):
        return _found(facts, entry) if entry.is_beside(facts.written) else ()
    changed = entry.names is None and facts.memo(_changed, lambda: _writes_changed(facts))
    if not changed and not _may_find_words(entry, facts.memo(_words_in, lambda: _words_in(facts.written))):
        return ()
    return _found(facts, entry)


def _found(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    rule = entry.load()
    return tuple(rule.check(facts, rule.card))


def may_find(entry: Entry, data: bytes) -> bool:
    """Whether the rule can find something in a module with this text, taken by itself."""
    return (entry.names is None and _changed(False).is_written(data)) or _may_find_words(entry, _words_in(data))


def _writes_changed(facts: ModuleFacts) -> bool:
    return _changed(facts.newest_only).is_written(facts.written)


def _may_find_words(entry: Entry, words: bytes) -> bool:
    return entry.scope == "everywhere" or any(part in words for part in _parts(entry))


def _words_in(data: bytes) -> bytes:
    """Every word of a text once, each as a line: a tenth of it, which is searched for many."""
    return b"\n".join(set(_WORDS.findall(data))) + b"\n"


@cache
def _parts(entry: Entry) -> frozenset[bytes]:
    """Few texts one of which `_words_in` has where a word or name is written: parts of words, ends of names."""
    # Every part of a name is written where it is.
    left = {name: set(name.split(".")) - _COMMON for name in entry.names or ()}
    chosen = set[str]()
    while left:
        counts = Counter(part for parts in left.values() for part in parts)
        best = max(counts, key=lambda part: (counts[part], len(part), part))
        chosen.add(best)
        left = {name: parts for name, parts in left.items() if best not in parts}
    pieces = (*(re.split(r"\W", word)[-1] for word in entry.words), *(f"{part}\n" for part in chosen))
    return frozenset(piece.encode() for piece in pieces)


@cache
def _changed(newest_only: bool) -> Vocabulary:
    from fsdp_migrate.rules.changed_names import names_asked

    return Vocabulary(names_asked(newest_only))
