"""The text of a block that replaces the statement around it."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import Span


def block_span(facts: ModuleFacts, statements: list[ast.stmt]) -> Span | None:
    """The statements with the comments above and below them, None unless they have their lines to themselves."""
    source = facts.source
    indent = facts.indentation(statements[0])
    start = source.span(statements[0]).start
    if text_before(facts, start) != indent:
        return None
    while above := _comment_above(facts, start, indent):
        start = above
    return Span(start, line_end(facts, source.span(statements[-1]).end))


def with_comments_below(facts: ModuleFacts, span: Span, indent: str) -> Span:
    """A block with the comments on the lines below it that are indented as it is."""
    source, end = facts.source, span.end
    while (start := next((one for one in source.line_starts if one > end), None)) is not None:
        if not source.data.startswith(f"{indent}#".encode(), start):
            break
        end = line_end(facts, start)
    return Span(span.start, end)


def _comment_above(facts: ModuleFacts, start: int, indent: str) -> int | None:
    """The start of a comment on the line above `start`, with the same indentation and nothing else."""
    line = facts.source.line_start(facts.source.line_start(start) - 1)
    place = line + len(indent.encode())
    return place if facts.source.data.startswith(f"{indent}#".encode(), line) else None


def text_before(facts: ModuleFacts, offset: int) -> str:
    """The text before `offset` on its line."""
    return facts.source.data[facts.source.line_start(offset) : offset].decode()


def line_end(facts: ModuleFacts, offset: int) -> int:
    """The end of the line of `offset`, without its newline."""
    source = facts.source
    following = next((start for start in source.line_starts if start > offset), len(source.data))
    return source.line_start(offset) + len(source.data[source.line_start(offset) : following].rstrip(b"\r\n"))
