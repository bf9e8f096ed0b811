"""Running rules on one module, each at most once and only where it can find something."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fsdp_migrate.written_names import Vocabulary

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.findings import Finding
    from fsdp_migrate.rules.entry import Entry


def findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    """What the rule finds in the module."""
    return facts.memo((findings_of, entry.code), lambda: _findings_of(facts, entry))


def _findings_of(facts: ModuleFacts, entry: Entry) -> tuple[Finding, ...]:
    if not may_find(entry, facts.written):
        return ()
    rule = entry.load()
    return tuple(rule.check(facts, rule.card))


def may_find(entry: Entry, data: bytes) -> bool:
    """Whether the rule can find something in a module with this text, taken by itself."""
    if entry.everywhere or any(mark in data for mark in _encoded(entry.marks)):
        return True
    return entry.changed and _changed().is_written(data)


@cache
def _encoded(marks: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(mark.encode() for mark in marks)


@cache
def _changed() -> Vocabulary:
    from fsdp_migrate.rules.changed_names import changed_names

    return Vocabulary(changed_names())
