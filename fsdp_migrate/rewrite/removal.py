"""Taking whole simple statements away."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Container
from itertools import takewhile

from fsdp_migrate.source import Replacement, Source, Span
from fsdp_migrate.splicing import RewriteError

_BLANK = b" \t\f"
_BLANK_LINE = re.compile(rb"[ \t]*(?:\r\n|\r|\n)")
_COMMENT = re.compile(r"#[^\r\n]*")
_NEWLINE = re.compile(rb"\r\n|\r|\n")
_BLOCKS = ("body", "orelse", "finalbody")


def removed(
    source: Source, statements: set[Span], *, leaving: bool = True, entirely: Container[Span] = ()
) -> list[Replacement]:
    """Take the simple statements at these spans away, with their lines where nothing else stands on them.

    Comments stay, but for those inside of statements that go `entirely`; a block that would be empty gets a `pass`.
    Where something may take the place of the statements, `leaving` is False, and blank lines around several of them
    stay.
    """
    first_ones = _first_of_blocks(source, statements)
    gone = {row for span in statements for row in _rows(source, span)} if leaving else set()
    found = []
    for span in sorted(statements):
        comments = [] if span in entirely else _COMMENT.findall(source.segment(span))
        found.append(_removed(source, span, first_ones.get(span), gone, comments))
    return found


def _rows(source: Source, span: Span) -> range:
    """The lines that a statement stands on, by number."""
    first, last = (bisect_left(source.line_starts, source.line_start(offset)) for offset in span)
    return range(first, last + 1)


def _first_of_blocks(source: Source, statements: set[Span]) -> dict[Span, bool]:
    """Those of the statements that stand first in an indented block, and whether nothing else is left of it."""
    found = {}
    for node in ast.walk(source.tree) if statements else ():
        blocks = () if isinstance(node, ast.Module) else [getattr(node, name, None) for name in _BLOCKS]
        for block in blocks:
            if isinstance(block, list) and block:
                spans = [source.span(statement) for statement in block]
                found[spans[0]] = statements.issuperset(spans)
    return found


def _removed(
    source: Source, span: Span, empties_block: bool | None, gone: set[int], comments: list[str]
) -> Replacement:
    """`empties_block` is None for a statement that is not the first of an indented block.

    The lines `gone` are those of all statements that go; `comments` stand in this one, and stay.
    """
    data = source.data
    line_start = source.line_start(span.start)
    newline = _NEWLINE.search(data, span.end)
    line_end = newline.start() if newline else len(data)
    before = data[line_start : span.start].strip(_BLANK)
    after = data[span.end : line_end].lstrip(_BLANK)
    if empties_block or comments:
        if comments and (before or after[:1] not in (b"", b"#")):
            raise RewriteError("an import with comments inside shares its line with other code")
        return _replaced(source, span, "pass" if empties_block else "", comments, line_end if after else span.end)
    if before and not after.startswith(b";"):
        kept = data[: data.rindex(b";", line_start, span.start)].rstrip(_BLANK)
        return Replacement(Span(len(kept), span.end), "")
    rest = after.removeprefix(b";").lstrip(_BLANK)
    if before or rest:
        return Replacement(Span(span.start, line_end - len(rest)), "")
    start = data.rfind(b"\f", line_start, span.start) + 1 or line_start
    end = newline.end() if newline else len(data)
    return Replacement(Span(start, _after_blank_lines(source, line_start, end, empties_block is not None, gone)), "")


def _replaced(source: Source, span: Span, stand_in: str, comments: list[str], line_end: int) -> Replacement:
    """The comments of a statement on lines of their own, then what stands in for it."""
    if not stand_in:
        # A comment behind the statement needs a line of its own too; `line_end` is where it ends.
        comments = comments + _COMMENT.findall(source.segment(Span(span.end, line_end)))
        *comments, stand_in = comments
        span = Span(span.start, line_end)
    line = source.data[source.line_start(span.start) : span.start].decode()
    newline = source.newline_at(span.start)
    return Replacement(span, "".join(f"{comment}{newline}{line}" for comment in comments) + stand_in)


def _after_blank_lines(source: Source, line_start: int, end: int, opens_block: bool, gone: set[int]) -> int:
    """Where to go on behind a removed line: blank lines below give way to those above, or to an opening block."""
    piece = source.piece(line_start)
    first, row = (bisect_left(source.line_starts, offset) for offset in (piece.start, line_start))
    rows = range(row - 1, first - 1, -1)
    passed = list(takewhile(lambda line: line in gone or not source.text_lines[line].strip(" \t\r\n"), rows))
    above = len([line for line in passed if line not in gone])
    most = above if not opens_block and len(passed) < row - first else len(source.text_lines)
    for _ in range(most):
        blank = _BLANK_LINE.match(source.data, end, piece.end)
        if blank is None:
            break
        end = blank.end()
    return end
