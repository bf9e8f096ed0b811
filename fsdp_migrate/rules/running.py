"""Running rules on one module, each at most once and only where it can find something."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.written_names import Vocabulary

# Stands for all names that changed, in the place of a mark.
_CHANGED = ""

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.findings import Finding
    from fsdp_migrate.rules.entry import Entry


def findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds in the module."""
    return facts.memo((findings_of, entry.code), lambda: _findings_of(facts, entry))


def _findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    if not may_find(entry, facts.written, facts.memo(may_find, dict)):
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


@cache
def _changed() -> Vocabulary:
    from fsdp_migrate.rules.changed_names import changed_names

    return Vocabulary(changed_names())
