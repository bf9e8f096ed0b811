"""Putting texts into bytes, and moving lines to another indentation, without touching anything else."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from itertools import pairwise

from fsdp_migrate.source import Replacement

NEWLINE = re.compile(r"\r\n|\r|\n")
_BARE_LINE_FEED = re.compile(r"(?<!\r)\n")
_LITERAL_STARTS = ("FSTRING_START", "TSTRING_START")  # Python 3.12 and 3.14
_LITERAL_ENDS = ("FSTRING_END", "TSTRING_END")


class RewriteError(Exception):
    """A plan that cannot be carried out; it is this program's fault, and the message says what failed."""

    @property
    def reason(self) -> str:
        """Why the fix was left out, for the user."""
        return f"internal: {self}; the fix was skipped, please report this"


class TooDeepError(RewriteError):
    """Code that is nested more deeply than LibCST can follow."""

    @property
    def reason(self) -> str:
        """Why the fix was left out, for the user."""
        return str(self)


def splice(data: bytes, replacements: Iterable[Replacement]) -> bytes:
    """Carry out all replacements.

    Raises:
        RewriteError: two of them overlap, or insert at one offset in no given order.
    """
    ordered = sorted(replacements, key=lambda r: (r.span, r.rank))
    for one, two in pairwise(ordered):
        same_point = one.span == two.span and one.rank == two.rank
        if one.span.overlaps(two.span) or same_point:
            raise RewriteError(f"two edits overlap at byte {two.span.start}")
    pieces, done = [], 0
    for span, text, _ in ordered:
        pieces += [data[done : span.start], text.encode()]
        done = span.end
    return b"".join([*pieces, data[done:]])


def with_newlines(text: str, newline: str) -> str:
    """`text` with its bare line feeds written as `newline`."""
    return text if newline == "\n" else _BARE_LINE_FEED.sub(newline, text)


def reindent(code: str, old: str, new: str, *, before: str = "", after: str = "") -> str:
    """`code` with the indentation `old` of its lines, the first one apart, replaced by `new`.

    Blank lines, lines inside string literals and lines indented less than `old` stay as they are. `before` and
    `after` are what makes `code` a piece that can be tokenized by itself; `before` ends on the line of `code`.
    """
    newlines = list(NEWLINE.finditer(code))
    if not newlines or old == new:
        return code
    inside = _lines_inside_literals(before + code + after)
    first = len(NEWLINE.findall(before)) + 1
    pieces = [code[: newlines[0].end()]]
    bounds = [*(match.end() for match in newlines), len(code)]
    for number, (start, end) in enumerate(pairwise(bounds), first + 1):
        line = code[start:end]
        moves = line.strip() and line.startswith(old) and number not in inside
        pieces.append(new + line[len(old) :] if moves else line)
    return "".join(pieces)


def _lines_inside_literals(code: str) -> set[int]:
    """Numbers, from 1, of the lines that start inside a string literal."""
    inside: set[int] = set()
    opened: list[int] = []
    # With plain newlines all releases of tokenize count lines as the parser does; no column matters here.
    plain = NEWLINE.sub("\n", code)
    try:
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            kind = tokenize.tok_name[token.type]
            if token.type == tokenize.STRING:
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
            elif kind in _LITERAL_STARTS:
                opened.append(token.start[0])
            elif kind in _LITERAL_ENDS:
                inside.update(range(opened.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, SyntaxError) as error:
        raise RewriteError(f"cannot read the statement again: {error}") from None
    return inside
