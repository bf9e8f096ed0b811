"""Notebooks: the Python cells of a `.ipynb` file as one module, and edits of it as edits of the file.

Cells with `%%writefile train.py` are Python files that the notebook writes. Each file is a module of its own.
"""

from __future__ import annotations

import ast
import codecs
import os.path
import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.source import Position, Source, SourceError, Span, parse, split_lines
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.workspace.notebook.document import RawCell, read_cells
from fsdp_migrate.workspace.notebook.magics import PythonView, python_view, without_first_line

if TYPE_CHECKING:
    from fsdp_migrate.source import Replacement

_WRITES = re.compile(r"\s*%%(?:write)?file[ \t]+([^\r\n]+)")
_APPENDS = frozenset(["-a", "--append"])
_PYTHON = (".py", ".pyi")
_SHELL_COMMENT = re.compile(r"(?<![^\s;&|])#[^\r\n]*")


@dataclass(frozen=True)
class Cell:
    """One cell of the module: `span` is its text with the final newline, `masked` the parts that are not Python.

    `commands` are the parts that a magic passes to a shell or takes itself.
    """

    raw: RawCell
    text: str
    span: Span
    masked: tuple[Span, ...]
    error: SyntaxError | None
    commands: tuple[Span, ...] = ()

    @property
    def number(self) -> int:
        """Its number among cells of every kind, from 1."""
        return self.raw.number

    def characters(self, span: Span) -> int:
        """The number of characters of the cell, and of the newline after it, in a span of the module."""
        start, end = (max(0, offset - self.span.start) for offset in (span.start, span.end))
        return len(self.encoded[start:end].decode("utf-8", "surrogatepass"))

    @cached_property
    def encoded(self) -> bytes:
        """The text with the newline that ends it, as UTF-8."""
        return f"{self.text}\n".encode("utf-8", "surrogatepass")


class Notebook(Source):
    """The Python cells of a notebook, each ended by a newline, as one text; magics are masked in it."""

    # Whether the value of the expression that ends a cell is shown below it.
    shows_values = True
    # The indices of the cells that are another file's.
    own: tuple[int, ...] = ()

    def __init__(self, raw: bytes) -> None:
        """Read the file.

        Raises:
            SourceError: it is not UTF-8, not JSON, or not a notebook.
        """
        self.bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
        self.encoding = "utf-8"
        try:
            self.json = raw[len(self.bom) :].decode()
        except UnicodeDecodeError as error:
            raise SourceError(f"not valid utf-8: {error}") from None
        self.cells: list[Cell] = []
        self._starts: list[int] = []
        text = []
        size = 0
        for cell in read_cells(self.json):
            source = "".join(cell.source)
            view = python_view(source)
            text += [view.prefix, view.text, "\n"]
            start = size + len(view.prefix.encode())
            size = start + len(view.text.encode()) + 1
            self._starts.append(start)
            self.cells.append(_cell(cell, source, view, start))
        self.text = "".join(text)
        self.data = self.text.encode()

    @cached_property
    def newline(self) -> str:
        """The first line ending inside a cell, LF if every cell has one line."""
        ends = (line[len(line.rstrip("\r\n")) :] for cell in self.cells for line in split_lines(cell.text)[:1])
        return next(filter(None, ends), "\n")

    def newline_at(self, offset: int) -> str:
        """The line ending for a new line at `offset`: that of its cell."""
        if not self.cells:
            return super().newline_at(offset)
        start, end = self.cell_at(offset).span
        return self._newline_within(Span(start, end - 1), offset)

    @property
    def written(self) -> bytes:
        """The text of the cells, magics included."""
        return b"".join(cell.encoded for cell in self.cells)

    @property
    def modules(self) -> tuple[Source, ...]:
        """This module, then the Python files that cells write. An offset means the same place in all of them."""
        return (self, *self._programs)

    @property
    def commands(self) -> Iterator[tuple[Span, str]]:
        """The commands of magics, by their spans in the module."""
        for cell in self.cells:
            for span in cell.commands:
                start, end = (offset - cell.span.start for offset in span)
                yield span, cell.encoded[start:end].decode("utf-8", "surrogatepass")

    @cached_property
    def comments(self) -> list[tuple[Span, str]]:
        """The comments of the Python code, and those of shell commands."""
        found = [*super().comments]
        for command, text in self.commands:
            for match in _SHELL_COMMENT.finditer(text):
                start = command.start + len(text[: match.start()].encode("utf-8", "surrogatepass"))
                length = len(match.group().encode("utf-8", "surrogatepass"))
                found.append((Span(start, start + length), match.group()))
        return sorted(found)

    @cached_property
    def _programs(self) -> Sequence[Notebook]:
        if b"file" not in self.written:
            return ()
        return _programs_of(self)

    def module_at(self, offset: int) -> Source:
        """The module that contains the cell at an offset."""
        return self._owners.get(self._index(offset), self)

    @cached_property
    def _owners(self) -> dict[int, Source]:
        return {index: program for program in self._programs for index in program.own}

    @cached_property
    def blank(self) -> bytes:
        """As many bytes and lines as the text has, all empty."""
        return re.sub(rb"[^\r\n]", b" ", self.data)

    @property
    def broken(self) -> tuple[Cell, ...]:
        """The cells that do not parse."""
        return tuple(cell for cell in self.cells if cell.error is not None)

    def cell_at(self, offset: int) -> Cell:
        """The cell that contains a byte of the module."""
        return self.cells[self._index(offset)]

    def piece(self, offset: int) -> Span:
        """The cell around an offset, which no edit may leave."""
        return self.cell_at(offset).span if self.cells else super().piece(offset)

    def runs_apart(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two statements are in different cells."""
        return self._index(self.span(one).start) != self._index(self.span(other).start)

    def location(self, offset: int) -> Position:
        """The cell of an offset, and line and column in it."""
        cell = self.cell_at(offset)
        line = self.position(offset).line - self.position(cell.span.start).line + 1
        column = cell.characters(Span(self.line_start(offset), offset)) + 1
        return Position(line, column, cell.number)

    def lines(self, cell: int | None) -> list[str]:
        """The lines of a cell as they are, magics included."""
        return next((split_lines(known.text) for known in self.cells if known.number == cell), [])

    def masks(self, span: Span) -> Iterator[Span]:
        """The parts of a span that stand for magics; the cells have other text there."""
        for cell in self.cells[self._index(span.start) : self._index(span.end) + 1]:
            yield from (mask for mask in cell.masked if mask.overlaps(span))

    def encode(self, data: bytes, changes: Sequence[Replacement] = ()) -> bytes:
        """The bytes of the file after `changes`: its JSON with other strings in the changed cells.

        Raises:
            RewriteError: a change touches a magic or more than one cell.
        """
        from fsdp_migrate.workspace.notebook.splicing import CellEdit, CellSource, spliced

        by_cell: dict[int, list[CellEdit]] = {}
        for span, text, _ in sorted(changes, key=lambda change: (change.span, change.rank)):
            module, index = self.module_at(span.start), self._index(span.start)
            cell = self.cells[index]
            assert isinstance(module, Notebook)
            if not cell.span.contains(span) or any(module.masks(span)):
                raise RewriteError(f"an edit of cell {cell.number} touches what it must not")
            start = cell.characters(Span(cell.span.start, span.start))
            by_cell.setdefault(index, []).append(CellEdit(start, start + cell.characters(span), text))
        sources = {index: CellSource(self.json, self.cells[index].raw.source) for index in by_cell}
        return (
            self.bom
            + spliced(self.json, (e for index, cell in by_cell.items() for e in sources[index].edited(cell))).encode()
        )

    def _index(self, offset: int) -> int:
        return max(0, bisect_right(self._starts, offset) - 1)


def _cell(raw: RawCell, text: str, view: PythonView, start: int) -> Cell:
    masked, commands = (
        tuple(Span(start + span.start, start + span.end) for span in spans) for spans in (view.masked, view.commands)
    )
    return Cell(raw, text, Span(start, start + len(view.text.encode()) + 1), masked, view.error, commands)


class Program(Notebook):
    """One file that a notebook writes, at the places of its cells in the notebook; the rest is blank.

    If it does not parse, all of it is blank.
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
        """Only itself: it writes no files."""
        return (self,)

    def runs_apart(self, one: ast.AST, other: ast.AST) -> bool:
        """Never: the file is run as a whole."""
        return False

    @property
    def written(self) -> bytes:
        """The text of its cells, magics included."""
        return b"".join(self.cells[index].encoded for index in self.own)

    def _read(self, notebook: Notebook, views: dict[int, PythonView]) -> None:
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
        """The index of the cell that contains an error, and the error with its place in that cell."""
        line = min(max(error.lineno or 1, 1), len(self.line_starts))
        offset = self.line_starts[line - 1]
        index = next((i for i in reversed(self.own) if self.cells[i].span.start <= offset), self.own[0])
        cell_line = line - self.position(self.cells[index].span.start).line + 1
        return index, SyntaxError(error.msg, ("<unknown>", cell_line, error.offset, error.text))


def _programs_of(notebook: Notebook) -> list[Program]:
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
    """The Python file that a cell writes, and whether it appends; None if it writes none."""
    magic = _WRITES.match(cell)
    if magic is None:
        return None
    try:
        words = shlex.split(magic[1])
    except ValueError:
        return None
    names = [word for word in words if word not in _APPENDS]
    return (names[0], len(names) < len(words)) if len(names) == 1 and names[0].endswith(_PYTHON) else None
