"""Where rules of their own speak: there the general ones, which read the API data only, are silent."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Severity
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.rules.releases import uses_of
from fsdp_migrate.rules.running import findings_of
from fsdp_migrate.rules.torch_places import bindings_of, imports
from fsdp_migrate.source import Span

GENERAL = ("FSDP500", "FSDP600", "FSDP610")


def spoken_for(facts: ModuleFacts, *, hints: bool = False) -> tuple[Span, ...]:
    """The places of all findings that specific rules have in the file, selected or not, hints only if asked for."""
    found = facts.memo(spoken_for, lambda: _spoken_for(facts))
    return tuple(span for span, severity in found if hints or severity is not Severity.HINT)


def is_spoken_for(facts: ModuleFacts, *places: ast.AST, hints: bool = False) -> bool:
    """Whether a specific rule has a finding at one of the places, or at a use of a name that is imported there."""
    starts, ends = facts.memo((is_spoken_for, hints), lambda: _reaches(spoken_for(facts, hints=hints)))
    wanted = (facts.source.span(node) for place in places for node in (place, *_used(facts, place)))
    return any(ends[bisect_left(starts, one.end)] > one.start for one in wanted)


def _reaches(spans: Iterable[Span]) -> tuple[list[int], list[int]]:
    """Where the spans start, in order, and how far those reach that start in front of each, and all of them."""
    ordered = sorted(spans)
    return [span.start for span in ordered], list(accumulate((span.end for span in ordered), max, initial=0))


def _used(facts: ModuleFacts, place: ast.AST) -> list[ast.expr]:
    if not isinstance(place, ast.alias):
        return []
    taken = facts.memo(_used, lambda: {one.alias: one for one in imports(facts)})[place]
    return [use for binding in bindings_of(facts, taken) for use in uses_of(binding)] if taken.binds_path else []


def _spoken_for(facts: ModuleFacts) -> tuple[tuple[Span, Severity], ...]:
    specific = (entry for entry in ENTRIES if entry.code not in GENERAL)
    found = (finding for entry in specific for finding in findings_of(facts, entry))
    return tuple((finding.span, finding.severity) for finding in found)
