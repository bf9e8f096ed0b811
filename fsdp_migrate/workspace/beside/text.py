"""A text that holds no Python: to the rules on Python code it is an empty module."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from fsdp_migrate.source import Source, Span


class BesideText(Source):
    """A text with comments and positions, and without code."""

    @cached_property
    def tree(self) -> ast.Module:
        """An empty module.

        Raises:
            SyntaxError: the text does not parse as what it is.
        """
        return ast.parse("")

    @cached_property
    def comments(self) -> list[tuple[Span, str]]:
        """Every comment with its span, in order."""
        return [(span, self.segment(span)) for span in self.comment_spans]

    @property
    def comment_spans(self) -> list[Span]:
        """Where the comments are."""
        raise NotImplementedError

    def _lines_without(self, spans: Iterable[Span]) -> set[int]:
        """The lines whose ends lie in none of some spans."""
        inside = {
            line
            for span in spans
            for line in range(self.line_number(span.start), self.line_number(max(span.start, span.end - 1)))
        }
        return set(range(1, len(self.line_starts) + 1)) - inside

    def at(self, index: int) -> int:
        """The byte offset of a character."""
        return index if self._is_ascii else len(self.text[:index].encode())

    @cached_property
    def _is_ascii(self) -> bool:
        return self.text.isascii()
