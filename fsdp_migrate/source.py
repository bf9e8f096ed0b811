"""A file's text with exact positions: everything inside counts UTF-8 bytes, everything shown counts code points."""

from __future__ import annotations

import ast
import codecs
import io
import itertools
import re
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOTEBOOK_SUFFIX = ".ipynb"
# What a folder is searched for.
SUFFIXES = (".py", ".pyi", NOTEBOOK_SUFFIX)
# What stands beside the code: configuration of frameworks, and what starts programs.
YAML_SUFFIXES = (".yaml", ".yml")
_SCRIPT_SUFFIXES = (".sh", ".slurm", ".sbatch")

# What files begin with that some editors and shells of Windows write. Python does not read them.
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Where a string of JSON starts, and its newlines, which are two characters.
_START_IN_JSON = pattern(rb'(?:\\[nrt]|(?<!\\)")(?:[ ]*(?:>>>|\.\.\.)[ ])?')
_NEWLINE = pattern(rb"\r\n|\r|\n")
_LAST_NEWLINE = pattern(rb"(?:\r\n|\r|\n)\Z")
_LINE = pattern(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


# In characters. A tree takes some 100 bytes for each, 130 in texts that are all numbers and strings: for this many half
# a gigabyte, and every process may have one.
LONGEST_TEXT = 4_000_000


class SourceError(Exception):
    """The bytes cannot be read as a Python source text; the message is one line for the user."""


class TooLargeError(SyntaxError):
    """A text that is not parsed because its tree would not fit into the memory that one file may take."""


class NoReaderError(SyntaxError):
    """A text that is not read, because the package for it is missing."""


class Span(NamedTuple):
    """A half-open range of byte offsets into `Source.data`."""

    start: int
    end: int

    def contains(self, other: Span) -> bool:
        """Whether `other` lies within this span (equality counts)."""
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Span) -> bool:
        """Whether the two spans share a byte, or one is an insertion point inside the other."""
        return self.start < other.end and other.start < self.end


class Replacement(NamedTuple):
    """New text for a span of the original; at one offset, insertions come in the order of `rank`."""

    span: Span
    text: str
    rank: int = 0


class Position(NamedTuple):
    """A place as people count it: line and column from 1, columns in code points; in a notebook, within a cell."""

    line: int
    column: int
    cell: int | None = None


class Source:
    """One Python text, held as UTF-8 whatever its encoding on disk.

    `data` is the text as UTF-8 without a byte order mark; every `Span` in the program indexes it. `encode` gives
    the bytes of an edited text back in the file's own encoding, byte order mark included.
    """

    def __init__(self, raw: bytes) -> None:
        """Decode `raw`.

        Raises:
            SourceError: when the encoding is unknown, the bytes do not fit it, or it does not round-trip.
        """
        self.bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
        body = raw[len(self.bom) :]
        self.encoding = _detected(raw)
        try:
            self.text = body.decode(self.encoding)
            self.data = body if self.encoding == "utf-8" else self.text.encode("utf-8")
            same = self.encoding == "utf-8" or self.text.encode(self.encoding) == body
        except (UnicodeError, LookupError) as error:  # of some codecs not the error that is for decoding
            raise SourceError(f"not valid {self.encoding}: {' '.join(str(error).split())}") from None
        if not same:
            raise SourceError(f"{self.encoding} does not round-trip here; convert the file to UTF-8")

    def encode(self, data: bytes, changes: Sequence[Replacement] = ()) -> bytes:
        """Bytes for the disk of `data`, the UTF-8 text that `changes` made of this one."""
        if self.encoding == "utf-8":
            return self.bom + data
        return self.bom + data.decode("utf-8").encode(self.encoding)

    @cached_property
    def line_starts(self) -> list[int]:
        """Byte offset of each line's start, by Python's own newlines only (never form feeds or U+2028)."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.data))]

    @cached_property
    def newline(self) -> str:
        """The line ending of the first line, LF for a text without one."""
        match = _NEWLINE.search(self.data)
        return match.group().decode() if match else "\n"

    def newline_at(self, offset: int) -> str:
        """How a new line at `offset` ends: as the line there does, or the one above where that has no end."""
        return self._newline_within(Span(0, len(self.data)), offset)

    def _newline_within(self, piece: Span, offset: int) -> str:
        found = _NEWLINE.search(self.data, offset, piece.end)
        if found is None:
            start = self.line_start(offset)
            found = _LAST_NEWLINE.search(self.data, max(piece.start, start - 2), start)
        return self.newline if found is None else found.group().decode()

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, parsed once.

        Raises:
            SyntaxError: as `parse` does.
        """
        return parse(self.text)

    @cached_property
    def comments(self) -> list[tuple[Span, str]]:
        """Every comment with its span, in order."""
        from fsdp_migrate.scan.comments import comment_places  # needed only where something is found

        places = comment_places(self.data)
        return self._tokenized() if places is None else [(Span(*at), self.data[slice(*at)].decode()) for at in places]

    def _tokenized(self) -> list[tuple[Span, str]]:
        found = []
        # tokenize reads lines as Python does only if it is given Python's own lines, and no carriage returns.
        lines = (re.sub(r"\r\n?\Z", "\n", line) for line in self.text_lines)
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                line = self.text_lines[row - 1]
                start = self.line_starts[row - 1] + len(line[:column].encode())
                found.append((Span(start, start + len(token.string.encode())), token.string))
        return found

    @cached_property
    def text_lines(self) -> list[str]:
        """The lines with their newlines, one per entry of `line_starts`."""
        bounds = [*self.line_starts, len(self.data)]
        return [self.data[start:end].decode() for start, end in itertools.pairwise(bounds)]

    def span(self, node: ast.AST) -> Span:
        """Where a node with a position stands."""
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        starts = self.line_starts
        return Span(starts[line - 1] + node.col_offset, starts[end_line - 1] + node.end_col_offset)  # type: ignore[attr-defined]

    def segment(self, place: ast.AST | Span) -> str:
        """The text of a node or a span."""
        span = place if isinstance(place, Span) else self.span(place)
        return self.data[span.start : span.end].decode()

    def position(self, offset: int) -> Position:
        """Line and column, from 1, of a byte offset."""
        line = self.line_number(offset)
        start = self.line_starts[line - 1]
        return Position(line, len(self.data[start:offset].decode()) + 1)

    def line_number(self, offset: int) -> int:
        """The line, from 1, of a byte offset."""
        return bisect_right(self.line_starts, offset)

    def location(self, offset: int) -> Position:
        """The place of a byte offset in the file: its position, unless the file holds the text in cells."""
        return self.position(offset)

    @property
    def comment_lines(self) -> set[int] | None:
        """The lines, from 1, that a comment can end, where that is known without Python's tokens."""
        return None

    @property
    def modules(self) -> tuple[Source, ...]:
        """The modules that the file holds: this one alone, unless it is a notebook that writes others."""
        return (self,)

    def module_at(self, offset: int) -> Source:
        """The module that a byte offset is in."""
        return self

    @property
    def broken(self) -> tuple[object, ...]:
        """Parts of the file that do not parse and are left out of the text, which a notebook can have."""
        return ()

    @property
    def written(self) -> bytes:
        """The text as it is written, as UTF-8: `data` with what it leaves out."""
        return self.data

    @property
    def commands(self) -> Iterable[tuple[Span, str]]:
        """Commands for a shell that stand in the text, which a notebook can have: where, and as they are written."""
        return ()

    def piece(self, offset: int) -> Span:
        """What belongs together around an offset: the whole text, unless the file holds it in cells."""
        return Span(0, len(self.data))

    def runs_apart(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether one of two statements may be run although the other has failed, as cells are."""
        return False

    def lines(self, cell: int | None) -> list[str]:
        """The lines, with their newlines, that the locations in a cell mean (None where there are no cells)."""
        return self.text_lines

    def line_start(self, offset: int) -> int:
        """Byte offset at which the line of `offset` starts."""
        return self.line_starts[bisect_right(self.line_starts, offset) - 1]

    def has_comment(self, span: Span) -> bool:
        """Whether a comment starts inside `span`."""
        if self.data.find(b"#", span.start, span.end) < 0:
            return False
        return bisect_left(self._comment_starts, span.start) < bisect_left(self._comment_starts, span.end)

    @cached_property
    def _comment_starts(self) -> list[int]:
        return [span.start for span, _ in self.comments]


def is_notebook(path: str) -> bool:
    """Whether a file of this name holds its text in the cells of a notebook."""
    return path.endswith(NOTEBOOK_SUFFIX)


def is_yaml(path: str) -> bool:
    """Whether a file of this name holds YAML."""
    return path.endswith(YAML_SUFFIXES)


def is_script(path: str) -> bool:
    """Whether a file of this name holds commands of a shell: a script, a Makefile, a Dockerfile."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return name.endswith(_SCRIPT_SUFFIXES) or name == "Makefile" or name.startswith("Dockerfile")


def is_beside(path: str) -> bool:
    """Whether a file of this name holds no Python, and is checked nevertheless."""
    return is_yaml(path) or is_script(path)


def lines_of(raw: bytes, path: str) -> bytes:
    """The bytes of a file; where it is a notebook, what starts a line of its code starts one here, without a prompt.

    For looks at bytes only: it is neither JSON nor Python any more. UTF-16 becomes UTF-8, so that words in it are seen.
    """
    if raw.startswith(_UTF_16):
        raw = raw.decode("utf-16", "replace").encode()
    return _START_IN_JSON.sub(b"\n", raw) if is_notebook(path) else raw


def holds(raw: bytes, path: str, words: Iterable[bytes]) -> bool:
    """Whether one of some words stands in the bytes of a file."""
    code = lines_of(raw, path)
    return any(word in code for word in words)


def split_lines(text: str) -> list[str]:
    """The lines of a text with their newlines, by Python's own newlines only."""
    return _LINE.findall(text)


def parse(text: str) -> ast.Module:
    """The syntax tree of a text, without the warnings that Python has about it.

    Raises:
        SyntaxError: as `ast.parse` does (null bytes and recursion limits included).
        TooLargeError: it has more characters than `LONGEST_TEXT`.
    """
    if len(text) > LONGEST_TEXT:
        raise TooLargeError(
            f"it has more than {LONGEST_TEXT // 1_000_000} million characters, which take too much memory"
        )
    if "\0" in text:  # which Python 3.10 and 3.11 call a ValueError, without a place
        before = text[: text.index("\0")]
        line = len(_NEWLINE.findall(before.encode())) + 1
        raise SyntaxError("a null byte", ("<unknown>", line, len(re.split(r"\r\n|\r|\n", before)[-1]) + 1, None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (RecursionError, MemoryError):
            raise SyntaxError("too deeply nested to parse") from None


def declared_encoding(text: str) -> str:
    """The encoding that a file with this text would be read in.

    Raises:
        SourceError: it declares one that does not exist.
    """
    return _detected(text.encode())


def _detected(raw: bytes) -> str:
    if raw.startswith(_UTF_16):
        raise SourceError("cannot be decoded: it is UTF-16, which Python does not read; convert it to UTF-8")
    # Newer Pythons refuse null bytes here already; they are a matter of the syntax, and have a place.
    lines = io.BytesIO(raw.replace(b"\0", b" ") if b"\0" in raw else raw)
    try:
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except (SyntaxError, LookupError, UnicodeError) as error:
        raise SourceError(f"cannot be decoded: {getattr(error, 'msg', None) or error}") from None
    return encoding.removesuffix("-sig")
