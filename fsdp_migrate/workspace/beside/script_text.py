"""A script for a shell, a Makefile or a Dockerfile, as words; what is not understood stays one word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span
from fsdp_migrate.workspace.beside.text import BesideText

_TOKEN = re.compile(
    r"""
    (?P<blank>(?:[ \t\f]|\\\r?\n)+)
    |(?P<newline>\r?\n|\r)
    |(?P<heredoc><<-?[ \t]*(?P<quote>['"]?)(?P<delimiter>\w+)(?P=quote))
    |(?P<operator>[;&|<>()]+)
    |(?P<comment>\#[^\r\n]*)
    |(?P<word>(?:\\[\s\S]|'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|[^\s\\'"`;&|<>()]
        |['"`\\])+)
    """,
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word as it is written, and where."""

    text: str
    span: Span


class ScriptText(BesideText):
    """A script; `path` is where it is shown to be, and what the programs that it starts are found from."""

    def __init__(self, raw: bytes, path: str) -> None:
        """Decode `raw`.

        Raises:
            SourceError: as for `Source`.
        """
        super().__init__(raw)
        self.path = path

    @cached_property
    def words(self) -> list[list[Word]]:
        """The words of each command."""
        found: list[list[Word]] = [[]]
        for kind, start, end in self._tokens:
            if kind == "word":
                found[-1].append(Word(self.text[start:end], Span(self.at(start), self.at(end))))
            elif kind in ("newline", "operator"):
                found.append([])
        return [words for words in found if words]

    @property
    def comment_spans(self) -> list[Span]:
        """Where the comments are."""
        return [Span(self.at(start), self.at(end)) for kind, start, end in self._tokens if kind == "comment"]

    @property
    def comment_lines(self) -> set[int]:
        """The lines that a comment can end: not inside of a word or a text, nor before a backslash."""
        return self._lines_without(
            Span(self.at(start), self.at(end)) for kind, start, end in self._tokens if kind in ("word", "blank", "text")
        )

    @cached_property
    def _tokens(self) -> list[tuple[str, int, int]]:
        return list(_tokens(self.text))


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Kinds and places; `text` is what a command gets as its input."""
    at, waiting = 0, list[str]()
    while at < len(text) and (match := _TOKEN.match(text, at)) is not None:
        kind = next(name for name in ("blank", "newline", "heredoc", "operator", "comment", "word") if match[name])
        yield kind, at, match.end()
        at = match.end()
        if kind == "heredoc":
            waiting.append(match["delimiter"])
        while kind == "newline" and waiting:
            end = re.compile(rf"^[ \t]*{re.escape(waiting.pop(0))}[ \t]*$", re.MULTILINE).search(text, at)
            stop = len(text) if end is None else end.end()
            yield "text", at, stop
            at = stop
