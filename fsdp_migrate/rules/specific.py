"""Where rules of their own speak: there the general ones, which read the API data only, are silent."""

from __future__ import annotations

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Severity
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.rules.running import findings_of
from fsdp_migrate.source import Span

GENERAL = ("FSDP500", "FSDP600")


def spoken_for(facts: ModuleFacts) -> tuple[Span, ...]:
    """The places of all findings but hints that specific rules have in the file, selected or not."""
    return facts.memo(spoken_for, lambda: _spoken_for(facts))


def _spoken_for(facts: ModuleFacts) -> tuple[Span, ...]:
    specific = (entry for entry in ENTRIES if entry.code not in GENERAL)
    found = (finding for entry in specific for finding in findings_of(facts, entry))
    return tuple(finding.span for finding in found if finding.severity is not Severity.HINT)
