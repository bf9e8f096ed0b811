"""The place of a finding in its file. In a notebook that is a place in its JSON, because other programs open that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.findings import Finding
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan
from fsdp_migrate.source import Source, Span, is_notebook

if TYPE_CHECKING:
    from fsdp_migrate.source import Replacement
    from fsdp_migrate.workspace.notebook import Notebook


class Region(NamedTuple):
    """Lines and columns from 1, columns in code points, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class Regions:
    """The regions of one file of a plan."""

    def __init__(self, plan: Plan, path: str) -> None:
        self.notebook: Notebook | None = None
        if is_notebook(path):
            from fsdp_migrate.workspace.notebook import Notebook

            source = plan.source(path)
            self.notebook = source if isinstance(source, Notebook) else None

    def of(self, finding: Finding) -> Region:
        """The region of a finding."""
        if self.notebook is None or finding.cell is None:
            return Region(finding.line, finding.column, finding.end_line, finding.end_column)
        from fsdp_migrate.workspace.notebook.splicing import CellSource

        cell = self.notebook.cell_at(finding.span.start)
        source = CellSource(self.notebook.json, cell.raw.source)
        first = cell.characters(Span(cell.span.start, finding.span.start))
        last = first + cell.characters(finding.span)
        return _region(self.notebook.json, source.place(first), source.place(last))

    def changes(self, source: Source, new: bytes, changes: list[Replacement]) -> list[tuple[Region, str]]:
        """The replaced regions and their new texts that make the file `new`; `changes` are those of its `source`."""
        if self.notebook is not None:
            return [_difference(self.notebook.json, new[len(self.notebook.bom) :].decode())]
        found = []
        for span, text, _ in changes:
            start, end = source.position(span.start), source.position(span.end)
            found.append((Region(start.line, start.column, end.line, end.column), text))
        return found


def _difference(old: str, new: str) -> tuple[Region, str]:
    """The one part of a text that differs, and the other text's part."""
    start = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - start
    same = next((i for i in range(most) if old[len(old) - 1 - i] != new[len(new) - 1 - i]), most)
    return _region(old, start, len(old) - same), new[start : len(new) - same]


def _region(text: str, start: int, end: int) -> Region:
    line, end_line = (text.count("\n", 0, offset) + 1 for offset in (start, end))
    column, end_column = (offset - text.rfind("\n", 0, offset) for offset in (start, end))
    return Region(line, column, end_line, end_column)
