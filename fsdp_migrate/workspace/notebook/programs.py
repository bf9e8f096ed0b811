"""Python files that a notebook writes: cells under `%%writefile train.py`, each file a module of its own."""

from __future__ import annotations

import ast
import os.path
import re
import shlex
from collections.abc import Iterable

from fsdp_migrate.source import Source, Span, parse
from fsdp_migrate.workspace.notebook import Cell, Notebook
from fsdp_migrate.workspace.notebook.magics import View, without_first_line

_WRITES = re.compile(r"\s*%%(?:write)?file[ \t]+([^\r\n]+)")
_APPENDS = frozenset(["-a", "--append"])
_PYTHON = (".py", ".pyi")


class Program(Notebook):
    """One file that a notebook writes, in the place where its cells are in the notebook; all else is blank.

    With an error in it, it is blank as a whole.
    """

    shows_values = False

    def __init__(self, notebook: Notebook, own: Iterable[int]) -> None:
        """`own` are the indices of its cells."""
        self.bom, self.encoding, self.json = notebook.bom, notebook.encoding, notebook.json
        self._starts = notebook._starts
        self.own = tuple(own)
        views = {index: without_first_line(notebook.cells[index].text) for index in self.own}
        self._read(notebook, views)
        try:
            parse(self.text)
        except SyntaxError as error:
            broken = self._place(error)
            self._read(notebook, {})
            index, fault = broken
            cell = self.cells[index]
            self.cells[index] = Cell(cell.raw, cell.text, cell.span, cell.masked, fault)

    @property
    def modules(self) -> tuple[Source, ...]:
        """Itself: it writes no files."""
        return (self,)

    def runs_apart(self, one: ast.AST, other: ast.AST) -> bool:
        """Never: the file is run as a whole."""
        return False

    @property
    def written(self) -> bytes:
        """The text of its cells, magics included."""
        return b"".join(self.cells[index].encoded for index in self.own)

    def _read(self, notebook: Notebook, views: dict[int, View]) -> None:
        data = bytearray(notebook.blank)
        self.cells = []
        for index, cell in enumerate(notebook.cells):
            masked: tuple[Span, ...] = (cell.span,)
            if index in views:
                data[cell.span.start : cell.span.end] = views[index].text.encode() + b"\n"
                start = cell.span.start
                masked = tuple(Span(start + mask.start, start + mask.end) for mask in views[index].masked)
            self.cells.append(Cell(cell.raw, cell.text, cell.span, masked, None))
        self.data = bytes(data)
        self.text = self.data.decode()
        self.__dict__.pop("line_starts", None)

    def _place(self, error: SyntaxError) -> tuple[int, SyntaxError]:
        """The index of the cell that an error is in, and the error as one of that cell."""
        line = min(max(error.lineno or 1, 1), len(self.line_starts))
        offset = self.line_starts[line - 1]
        index = next((i for i in reversed(self.own) if self.cells[i].span.start <= offset), self.own[0])
        cell_line = line - self.position(self.cells[index].span.start).line + 1
        return index, SyntaxError(error.msg, ("<unknown>", cell_line, error.offset, error.text))


def programs_of(notebook: Notebook) -> list[Program]:
    """The Python files that a notebook writes, in the order of their first cells."""
    groups: list[list[int]] = []
    by_name: dict[str, list[int]] = {}
    for index, cell in enumerate(notebook.cells):
        target = _target(cell.text)
        if target is None:
            continue
        name, appends = os.path.normpath(target[0]), target[1]
        if not appends or name not in by_name:
            by_name[name] = []
            groups.append(by_name[name])
        by_name[name].append(index)
    return [Program(notebook, group) for group in groups]


def _target(cell: str) -> tuple[str, bool] | None:
    """The Python file that a cell writes, and whether it adds to what is there; None if it writes none."""
    magic = _WRITES.match(cell)
    if magic is None:
        return None
    try:
        words = shlex.split(magic[1])
    except ValueError:
        return None
    names = [word for word in words if word not in _APPENDS]
    return (names[0], len(names) < len(words)) if len(names) == 1 and names[0].endswith(_PYTHON) else None
