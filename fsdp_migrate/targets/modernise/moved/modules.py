"""Where an import stands, and the edit that moves a name of it."""

from __future__ import annotations

import ast
from bisect import bisect_right

from fsdp_migrate.edits import MoveImport
from fsdp_migrate.facts import ModuleFacts


def has_own_lines(facts: ModuleFacts, statement: ast.stmt) -> bool:
    """Whether no other code stands on the lines of a statement."""
    source = facts.source
    span = source.span(statement)
    before = source.data[source.line_start(span.start) : span.start]
    next_line = bisect_right(source.line_starts, span.end)
    line_end = source.line_starts[next_line] if next_line < len(source.line_starts) else len(source.data)
    after = source.data[span.end : line_end].strip()
    return not before.strip() and (not after or after.startswith(b"#"))


def import_trouble(facts: ModuleFacts, statement: ast.stmt) -> str | None:
    """Why an import cannot become several statements, None when it can."""
    if not has_own_lines(facts, statement):
        return "the import shares its line with other code: put it on its own line"
    return None


def move(facts: ModuleFacts, statement: ast.stmt, name: str, module: str, text: str | None = None) -> MoveImport:
    """The edit that imports a bound name from another module; `text` is how it is written there, if otherwise."""
    return MoveImport(
        facts.source.span(statement), name, module, facts.indentation(statement), facts.indent_unit, text=text
    )
