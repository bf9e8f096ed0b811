"""Where rules of their own speak: there the general ones, which read the API data only, are silent."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from fsdp_migrate.code.torch_names import bindings_of, imports
from fsdp_migrate.code.unused_imports import uses_of
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Severity
from fsdp_migrate.patterns import pattern
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.rules.running import COPIES, findings_of
from fsdp_migrate.source import Span

# Names and chains of them, statements that import some, and f-strings, inside which old Pythons know no places.
_SPEAKS_FOR_ALL = pattern(rb"(?:(?:from|import)\b|\w+[\"']).*|[\w.\s\\\x80-\xff]+", re.DOTALL)
GENERAL = ("FSDP500", "FSDP600", "FSDP610", "FSDP691")


def claimed_spans(facts: ModuleFacts, *, hints: bool = False) -> tuple[Span, ...]:
    """The places of all findings that specific rules have in the file, selected or not, hints only if asked for."""
    return facts.memo((claimed_spans, hints), lambda: tuple(_claimed_spans(facts, hints)))


def is_claimed(facts: ModuleFacts, place: ast.AST, hints: bool = False) -> bool:
    """Whether a specific rule has a finding at a place, or at a use of a name that is bound there.

    Rules that find hints alone run only where no other one speaks.
    """
    wanted = [facts.source.span(node) for node in (place, *_used(facts, place))]
    return _is_met(facts, wanted, hints=False) or (hints and _is_met(facts, wanted, hints=True))


def _is_met(facts: ModuleFacts, wanted: Sequence[Span], *, hints: bool) -> bool:
    spans = facts.memo((is_claimed, hints), lambda: _Spans(facts, claimed_spans(facts, hints=hints)))
    return any(map(spans.meet, wanted))


class _Spans:
    """Where findings are: of names and statements, whose parts they speak for, and of expressions, that hold others."""

    def __init__(self, facts: ModuleFacts, spans: Iterable[Span]) -> None:
        found = {span: _SPEAKS_FOR_ALL.fullmatch(facts.source.data, span.start, span.end) for span in spans}
        self.expressions = {span for span, whole in found.items() if whole is None}
        self.starts, self.ends = _reaches(found.keys() - self.expressions)

    def meet(self, wanted: Span) -> bool:
        """Whether one of them speaks for what stands somewhere."""
        return wanted in self.expressions or self.ends[bisect_left(self.starts, wanted.end)] > wanted.start


def _reaches(spans: Iterable[Span]) -> tuple[list[int], list[int]]:
    """Where the spans start, in order, and how far those reach that start in front of each, and all of them."""
    ordered = sorted(spans)
    return [span.start for span in ordered], list(accumulate((span.end for span in ordered), max, initial=0))


def _used(facts: ModuleFacts, place: ast.AST) -> list[ast.expr]:
    if not isinstance(place, ast.alias):
        statement = facts.structure.parents.get(place)
        targets = [one.id for one in getattr(statement, "targets", ()) if isinstance(one, ast.Name)]
        bound = [binding for name in targets for binding in facts.scope(place).bindings.get(name, ())]
        return [use for binding in bound if binding.value is place for use in uses_of(binding)]
    taken = facts.memo(_used, lambda: {one.alias: one for one in imports(facts)})[place]
    return [use for binding in bindings_of(facts, taken) for use in uses_of(binding)] if taken.binds_path else []


def _claimed_spans(facts: ModuleFacts, hints: bool) -> Iterator[Span]:
    specific = (entry for entry in ENTRIES if entry.code not in (*GENERAL, COPIES) and (hints or not entry.hint))
    found = (finding for entry in specific for finding in findings_of(facts, entry))
    return (finding.span for finding in found if hints or finding.severity is not Severity.HINT)
