"""Findings in notebooks: a fix that would leave its cell or touch a magic becomes manual."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from fsdp_migrate.edits import Edit, EditComment, Replace, RewriteCall, Wrap, touched
from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.rules.unparsable import unparsable
from fsdp_migrate.source import Source, Span
from fsdp_migrate.workspace.notebook import Cell, Notebook

_NO_LONGER_SHOWN = "the notebook no longer shows the value below the cell"


def reviewed(source: Source, modules: Iterable[Source], path: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of one module of a notebook, with the fixes that are possible, and the broken cells.

    Names that stand for magics are not reported. A finding in a command has the command as its statement. If a cell of
    the `modules` does not parse, no fix is possible.
    """
    assert isinstance(source, Notebook)
    broken = next((cell for module in modules if isinstance(module, Notebook) for cell in module.broken), None)
    found = [
        unparsable("the cell", cell.error, source.lines(cell.number), path, cell.number, cell.span.start)
        for cell in source.broken
        if cell.error is not None
    ]
    commands = {span for span, _ in source.commands}
    return found + [
        _allowed(source, broken, finding)
        for finding in findings
        if finding.statement in commands or not _is_masked(source, finding.span.start)
    ]


def _is_masked(notebook: Notebook, offset: int) -> bool:
    return any(notebook.masks(Span(offset, offset + 1)))


def _allowed(notebook: Notebook, broken: Cell | None, finding: Finding) -> Finding:
    fix = finding.fix
    if fix is None:
        return finding
    trouble = next((trouble for edit in fix.edits if (trouble := _trouble(notebook, edit))), None)
    if broken is not None:
        trouble = f"cell {broken.number} does not parse: fix it first"
    if trouble is not None:
        return finding._replace(fix=None, applicability=Applicability.MANUAL, reason=trouble)
    removed_uses = tuple(r for r in fix.removed_uses if not _follows_magic(notebook, r.binding.statement))
    finding = finding._replace(fix=fix._replace(removed_uses=removed_uses))
    if finding.applicability is Applicability.SAFE and any(_hides_value(notebook, edit) for edit in fix.edits):
        return finding._replace(applicability=Applicability.UNSAFE, reason=_NO_LONGER_SHOWN)
    return finding


def _trouble(notebook: Notebook, edit: Edit) -> str | None:
    """Why an edit is not possible here."""
    for span in touched(edit):
        if not notebook.piece(span.start).contains(span):
            cells = (notebook.cell_at(span.start).number, notebook.cell_at(span.end).number)
            return f"the change would span cells {cells[0]} to {cells[1]}: make it by hand"
        if _follows_magic(notebook, span) and not _stays_on_line(edit):
            return "the code is on the line of a magic, which has to stay: make the change by hand"
        if any(notebook.masks(span)):
            return "the change would include a magic: make it by hand"
    return None


def _stays_on_line(edit: Edit) -> bool:
    return isinstance(edit, (RewriteCall, EditComment)) or (isinstance(edit, Replace) and "\n" not in edit.text)


def _follows_magic(notebook: Notebook, span: Span) -> bool:
    """Whether a magic is before `span` on its line."""
    return any(notebook.masks(Span(notebook.line_start(span.start), span.start)))


def _hides_value(notebook: Notebook, edit: Edit) -> bool:
    """Whether an edit moves the last expression of a cell, whose value is shown, into a block."""
    if not isinstance(edit, Wrap) or not notebook.shows_values:
        return False
    cell = notebook.cell_at(edit.span.start)
    return any(
        isinstance(statement, ast.Expr)
        and notebook.span(statement) == edit.span
        and not any(cell.span.contains(notebook.span(other)) for other in notebook.tree.body[number:])
        and not notebook.data[edit.span.end : cell.span.end].lstrip().startswith(b";")
        for number, statement in enumerate(notebook.tree.body, 1)
    )
