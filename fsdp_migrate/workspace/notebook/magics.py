"""Cells as Python: IPython's own syntax (`%time x`, `!ls`, `x?`, `%%bash`) is replaced by text of the same size.

Commands for a shell are kept apart. Names in a magic stay in the text, as operands of an expression without meaning:
`%timeit step(model)` uses `step` and `model`. All other offsets are those of the cell.
"""

from __future__ import annotations

import keyword
import re
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from fsdp_migrate.source import Span, parse

# Cell magics whose body is Python that runs with the names of the notebook, on its kernel or on all of its engines.
PYTHON_CELLS = frozenset(
    [
        *("capture", "debug", "time", "timeit", "prun"),
        *("ipytest", "lprun", "memit", "memray_flamegraph", "mprun", "pyinstrument", "scalene", "snakeviz"),
        *("distributed", "px", "rank"),
    ]
)

_NEWLINE = r"(?:\r\n|\r|\n)"
_LINE = re.compile(rf"[^\r\n]*(?:{_NEWLINE}|\Z)")
_BLANK = re.compile(r"[ \t\f]*")
_INDENT = re.compile(rf"(?:[ \t\f]*{_NEWLINE})*[ \t]+[^\s#]")
_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)
_CONTINUES = re.compile(rf"\\(?={_NEWLINE})")
# A backslash at its end carries a magic on to the next line.
_MAGIC = re.compile(rf"(?:[^\r\n\\]|\\{_NEWLINE}|\\)*")
_ESCAPES = ("%", "!", "?", ",", ";", "/")
_CELL_MAGIC = re.compile(r"%%(?!%)([\w.]+|!)(?!\w*\?)")
_ASSIGNED = re.compile(r"""[ \t]*[^\s=#'"!%](?:[^=#'"\[\r\n!%]|\[[^\]\r\n]*\])*=[ \t]*(?=!|%[A-Za-z])""")
_HELP = re.compile(r"""[^\s#'"][^#'"\r\n]*\?(?=[ \t]*(?:[\r\n]|\Z))""")
_RUNS_CODE = re.compile(r"%(?:time|timeit|prun|memit|lprun|mprun)[ \t]+(?:--?\w+[ \t]+(?:\d+[ \t]+)?)*")
_OTHER_LANGUAGE = re.compile(r"%(?:bash|fs|html|javascript|js|latex|markdown|md|perl|r|ruby|scala|sh|sql)\b", re.I)
# Cell magics whose body a shell runs, or that write a script for one; `%sh` is that of Databricks.
_SHELL_CELL = re.compile(
    r"(?:%%(?:bash|sh|system|sx|!)(?![\w.])|%%script\b[^\r\n]*\b(?:ba|da|k|z)?sh\b"
    r"|%%(?:write)?file\b[^\r\n]*\.(?:(?:ba|k|z)?sh|sbatch|slurm)\b|%sh\b)[^\r\n]*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d]\w*")
_INDENTED = "if True:\n"
_MOST_OPERANDS = 50


@dataclass(frozen=True)
class PythonView:
    """A cell as Python.

    `text` has the bytes and lines of the cell; `prefix` comes before it. `masked` are the ranges of bytes that differ
    from the cell; `commands` are the parts that a shell or another magic gets. A cell with an `error` does not parse,
    and is masked completely.
    """

    text: str
    masked: tuple[Span, ...] = ()
    commands: tuple[Span, ...] = ()
    prefix: str = ""
    error: SyntaxError | None = None


def python_view(cell: str) -> PythonView:
    """The cell as a text that parses by itself, unless it has an error."""
    masked = _Mask(cell)
    if _error(masked.text) is None:
        return masked.view()
    try:
        _hide_magics(masked)
    except _NotPythonError:
        return _blank(cell)
    error = _error(masked.text)
    if error is None:
        return masked.view()
    # IPython takes the indentation of the first line away from all.
    if _INDENT.match(cell) and _error(_INDENTED + masked.text) is None:
        return masked.view(_INDENTED)
    if _OTHER_LANGUAGE.match(cell.lstrip()):
        return _blank(cell)
    prompted = _Mask(cell)
    for match in _PROMPT.finditer(cell):
        prompted.hide(match.start(), match.end())
    if prompted.hidden and _error(_INDENTED + prompted.text) is None:
        return prompted.view(_INDENTED)
    for match in _LINE.finditer(cell):
        masked.hide_as_names(match.start(), match.start() + len(match.group().rstrip("\r\n")), ",")
    return masked.view(error=error)


def without_first_line(cell: str) -> PythonView:
    """The body of a cell magic that writes it to a file: it contains no other magics."""
    masked = _Mask(cell)
    masked.hide(0, _line_end(cell, len(cell) - len(cell.lstrip())))
    return masked.view()


class _NotPythonError(Exception):
    """The cell is in another language."""


class _Mask:
    """A text in which parts are replaced, byte for byte."""

    def __init__(self, cell: str) -> None:
        # Half a surrogate pair has no UTF-8; its stand-in has as many bytes as Python gives to it.
        self.chars = ["\ufffd" if "\ud800" <= char <= "\udfff" else char for char in cell]
        self.cell = "".join(self.chars)
        self.hidden = [(i, i + 1) for i, char in enumerate(cell) if char != self.chars[i]]
        self.commands: list[tuple[int, int]] = []

    @property
    def text(self) -> str:
        return "".join(self.chars)

    def hide(self, start: int, end: int, shown: str = "") -> None:
        """Replace a part by blanks after `shown` (ASCII); newlines stay."""
        for index in range(start, end):
            if self.cell[index] not in "\r\n":
                self._put(index, shown[index - start : index - start + 1] or " ")
        if start < end:
            self.hidden.append((start, end))

    def hide_as_names(self, start: int, end: int, operator: str) -> None:
        """Replace a part by the names in it, each once and joined by `operator`; backslashes at line ends stay."""
        if not self.cell[start:end].strip():
            return
        self.hide(start, end)
        for match in _CONTINUES.finditer(self.cell, start, end):
            self._put(match.start(), "\\")
        free, seen = start, set[str]()
        for match in _WORD.finditer(self.cell, start, end):
            word = match.group()
            if not word.isidentifier() or keyword.iskeyword(word) or word in seen:
                continue
            if match.start() > start:
                place = next((i for i in range(free, match.start()) if self.chars[i][0] == " "), None)
                if place is None:
                    continue
                self._put(place, operator if seen else "-")
            self.chars[match.start() : match.end()] = word
            free = match.end()
            seen.add(word)
        if not seen:
            self._put(start, "_")

    def _put(self, index: int, char: str) -> None:
        self.chars[index] = char + " " * (len(self.cell[index].encode()) - 1)

    def view(self, prefix: str = "", error: SyntaxError | None = None) -> PythonView:
        ends = [0, *accumulate(len(char.encode()) for char in self.chars)]
        masked, commands = (
            tuple(Span(ends[start], ends[end]) for start, end in sorted(places))
            for places in (self.hidden, self.commands)
        )
        return PythonView(self.text, masked, commands, prefix, error)


def _error(text: str) -> SyntaxError | None:
    try:
        parse(f"{text}\n")
    except SyntaxError as error:
        return error
    return None


def _blank(cell: str) -> PythonView:
    """A cell in another language: only commands if that is a shell's, nothing otherwise."""
    masked = _Mask(cell)
    masked.hide(0, len(cell))
    if shell := _SHELL_CELL.match(cell, _after_python_magics(cell)):
        lines = _MAGIC.finditer(cell, shell.end())
        masked.commands += [line.span() for line in lines if line.group().strip()]
    return masked.view()


def _after_python_magics(cell: str) -> int:
    """The place after the magics at the start of a cell whose body is Python, or what another magic makes of it."""
    position = len(cell) - len(cell.lstrip())
    while (magic := _CELL_MAGIC.match(cell, position)) and magic[1] in PYTHON_CELLS:
        line_end = _MAGIC.match(cell, position).end()  # type: ignore[union-attr]
        position = len(cell) - len(cell[line_end:].lstrip())
    return position


def _hide_magics(masked: _Mask) -> None:
    """Mask all magics of a cell.

    Raises:
        _NotPythonError: a magic says that the rest is no Python.
    """
    cell, position = masked.cell, len(masked.cell) - len(masked.cell.lstrip())
    while magic := _CELL_MAGIC.match(cell, position):
        if magic[1] not in PYTHON_CELLS:
            raise _NotPythonError
        line_end = _MAGIC.match(cell, position).end()  # type: ignore[union-attr]
        masked.hide_as_names(position, line_end, ",")
        position = len(cell) - len(cell[line_end:].lstrip("\r\n"))
    position = max(cell.rfind("\n", 0, position), cell.rfind("\r", 0, position)) + 1
    while position < len(cell):
        magic_end = _hide_magic(masked, position)
        position = _line_end(cell, magic_end) if magic_end is not None else _logical_line_end(cell, position)


def _hide_magic(masked: _Mask, line: int) -> int | None:
    """Mask the magic in the logical line that starts at `line`, if there is one; returns the end of the line."""
    cell = masked.cell
    start = _BLANK.match(cell, line).end()  # type: ignore[union-attr]
    if assigned := _ASSIGNED.match(cell, line):
        end = _MAGIC.match(cell, assigned.end()).end()  # type: ignore[union-attr]
        few = len(set(_WORD.findall(cell, assigned.end(), end))) < _MOST_OPERANDS
        masked.hide_as_names(assigned.end(), end, "+" if few else ",")
        masked.commands.append((assigned.end(), end))
        return end
    if cell.startswith(_ESCAPES, start):
        end = _MAGIC.match(cell, start).end()  # type: ignore[union-attr]
        command = _RUNS_CODE.match(cell, start, end)
        if command and command.end() < end and _error(f"_;{cell[command.end() : end]}") is None:
            masked.hide(start, command.end(), f"_{' ' * (command.end() - start - 2)};")
        else:
            masked.hide_as_names(start, end, ",")
            masked.commands.append((start, end))
        return end
    if asks_for_help := _HELP.match(cell, start):
        masked.hide_as_names(start, asks_for_help.end(), ",")
        return asks_for_help.end()
    return None


def _line_end(cell: str, position: int) -> int:
    """The end of the line of `position`, after its newline."""
    return _LINE.match(cell, position).end()  # type: ignore[union-attr]


def _logical_line_end(cell: str, start: int) -> int:
    """The end of the statement (or blank line) that starts at `start`; that of the cell if it cannot be read."""
    ends: list[int] = []
    only_comments = True
    try:
        for token in tokenize.generate_tokens(_lines(cell, start, ends)):
            if token.type == tokenize.NEWLINE or (token.type == tokenize.NL and only_comments):
                return ends[token.start[0] - 1]
            only_comments = only_comments and token.type == tokenize.COMMENT
    except (tokenize.TokenError, SyntaxError):
        pass
    return len(cell)


def _lines(cell: str, start: int, ends: list[int]) -> Callable[[], str]:
    """A `readline` of the lines from `start`, the first without indentation. It notes the end of each."""

    def readline() -> str:
        position = ends[-1] if ends else start
        if position >= len(cell):
            return ""
        line = cell[position : _line_end(cell, position)]
        ends.append(position + len(line))
        text = line.rstrip("\r\n") + "\n"
        return text if len(ends) > 1 else text.lstrip(" \t\f")

    return readline
