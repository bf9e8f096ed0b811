"""Notebooks: the Python cells of a `.ipynb` file as one module, and edits of it as edits of the file."""

from __future__ import annotations

import ast
import codecs
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.source import Position, Source, SourceError, Span, split_lines
from fsdp_migrate.workspace.notebook.document import RawCell, read_cells
from fsdp_migrate.workspace.notebook.magics import View, python_view

if TYPE_CHECKING:
    from fsdp_migrate.source import Replacement

_SHELL_COMMENT = re.compile(r"(?<![^\s;&|])#[^\r\n]*")


@dataclass(frozen=True)
class Cell:
    """One cell in the module: `span` is its text with the newline that ends it, `masked` what in it is no Python.

    `commands` are those of its parts that a magic gives to a shell, or takes itself.
    """

    raw: RawCell
    text: str
    span: Span
    masked: tuple[Span, ...]
    error: SyntaxError | None
    commands: tuple[Span, ...] = ()

    @property
    def number(self) -> int:
        """Its place among the cells of every kind, from 1."""
        return self.raw.number

    def characters(self, span: Span) -> int:
        """How many characters of the cell, and of the newline behind it, stand in a span of the module."""
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
        """The first line ending inside a cell, LF where every cell is one line."""
        ends = (line[len(line.rstrip("\r\n")) :] for cell in self.cells for line in split_lines(cell.text)[:1])
        return next(filter(None, ends), "\n")

    def newline_at(self, offset: int) -> str:
        """How a new line at `offset` ends: as those of its cell do, whatever stands between cells in the module."""
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
        """This module, then the Python files that cells write; an offset means the same place in all of them."""
        return (self, *self._programs)

    @property
    def commands(self) -> Iterator[tuple[Span, str]]:
        """What magics run, by the places that Python text of the same size takes in the module."""
        for cell in self.cells:
            for span in cell.commands:
                start, end = (offset - cell.span.start for offset in span)
                yield span, cell.encoded[start:end].decode("utf-8", "surrogatepass")

    @cached_property
    def comments(self) -> list[tuple[Span, str]]:
        """Those of the Python, and what a shell takes for comments."""
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
        from fsdp_migrate.workspace.notebook.programs import programs_of

        return programs_of(self)

    def module_at(self, offset: int) -> Source:
        """The module that the cell of an offset is part of."""
        return self._owners.get(self._index(offset), self)

    @cached_property
    def _owners(self) -> dict[int, Source]:
        return {index: program for program in self._programs for index in program.own}

    @cached_property
    def blank(self) -> bytes:
        """As many bytes and lines as the text has, with nothing on them."""
        return re.sub(rb"[^\r\n]", b" ", self.data)

    @property
    def broken(self) -> tuple[Cell, ...]:
        """The cells that do not parse."""
        return tuple(cell for cell in self.cells if cell.error is not None)

    def cell_at(self, offset: int) -> Cell:
        """The cell that a byte of the module stands in."""
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
        """The parts of a span that stand for magics: the cells have other text there."""
        for cell in self.cells[self._index(span.start) : self._index(span.end) + 1]:
            yield from (mask for mask in cell.masked if mask.overlaps(span))

    def encode(self, data: bytes, changes: Sequence[Replacement] = ()) -> bytes:
        """The bytes of the file after `changes`: its JSON with other strings in the changed cells.

        Raises:
            RewriteError: a change touches a magic or more than one cell.
        """
        from fsdp_migrate.workspace.notebook.splicing import spliced

        return self.bom + spliced(self, changes).encode()

    def _index(self, offset: int) -> int:
        return max(0, bisect_right(self._starts, offset) - 1)


def _cell(raw: RawCell, text: str, view: View, start: int) -> Cell:
    masked, commands = (
        tuple(Span(start + span.start, start + span.end) for span in spans) for spans in (view.masked, view.commands)
    )
    return Cell(raw, text, Span(start, start + len(view.text.encode()) + 1), masked, view.error, commands)
