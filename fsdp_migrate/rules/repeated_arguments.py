"""Arguments that a rewritten call would give twice: Python does not even compile it, or refuses it when it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from fsdp_migrate.edits import Edit, Hoist, RewriteCall, Wrap
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import given_twice, names_given, ordered_arguments


def repeated(facts: ModuleFacts, edits: Iterable[Edit]) -> str | None:
    """The first keyword that one of the rewritten calls would give twice, dict displays that it unpacks included."""
    for edit in edits:
        for call in _calls(edit):
            if twice := given_twice(_names(facts, call)):
                return twice[0]
    return None


def _calls(edit: Edit) -> Iterator[RewriteCall]:
    inner = edit.inner if isinstance(edit, Wrap) else (edit.call,) if isinstance(edit, Hoist) else (edit,)
    yield from (one for one in inner if isinstance(one, RewriteCall))


def _names(facts: ModuleFacts, edit: RewriteCall) -> Iterator[str]:
    calls = facts.memo(_names, lambda: {facts.source.span(call): call for call in facts.structure.calls})
    old = ordered_arguments(calls[edit.span]) if edit.span in calls else []
    for one in edit.arguments:
        unpacked = old[one.index] if old and one.keyword is None and one.index is not None else None
        if one.keyword is not None:
            yield one.keyword
        elif isinstance(unpacked, ast.keyword):
            yield from names_given(unpacked)
