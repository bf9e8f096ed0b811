"""Comments that silence findings.

`# noqa`, `# noqa: FSDP101` and `# fsdp-migrate: ignore[FSDP101]` speak for their statement,
`# fsdp-migrate: ignore-file[FSDP101]` for the whole file; without codes, for every rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from fsdp_migrate.findings import Finding
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Source, Span

# Few files have such comments: none of these is compiled before there is one.
_NOQA = r"(?i)#\s*noqa\b(?!-)(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*))?"
_OWN = r"(?i)#\s*fsdp-migrate:\s*ignore(?P<file>-file)?\b(?!-)(?:\[(?P<codes>[^\]]*)\])?"
# Any tool: linters, type checkers, formatters.
_SILENCING = r"(?i)#\s*(?:noqa|nosec|type:\s*ignore|(?:pyright|mypy|pylint|ruff|isort|pragma|fmt)\s*:)"
_MENTIONS = (re.compile(rb"noqa"), re.compile(rb"fsdp-migrate"))
_WHOLE_FILE = b"ignore-file"


def is_silencing(comment: str) -> bool:
    """Whether a comment silences some tool: a linter, a type checker, a formatter."""
    return re.match(_SILENCING, comment) is not None


class Directive(NamedTuple):
    """One suppression: what it says, and where it stands in the text of its comment.

    `codes` are as they were written, None where it means every rule. `whole_file` and `own` tell the kinds apart: an
    own one speaks to this tool alone, a `noqa` to others too. `used` are the codes that have silenced something ("" for
    every rule).
    """

    comment: Span
    text: str
    line: int
    start: int
    end: int
    codes: tuple[str, ...] | None
    codes_at: tuple[int, int]
    own: bool
    whole_file: bool
    used: set[str]

    def matching(self, code: str, name: str) -> list[str]:
        """The written codes that mean a rule: its code, the start of it, or its name."""
        if self.codes is None:
            return [""]
        return [word for word in self.codes if code.startswith(word.upper()) or word.lower() == name]


class Suppressions:
    """The suppressing comments of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def directives(self) -> list[Directive]:
        """All of them, in order."""
        return [directive for span, text in self.source.comments for directive in self._read(span, text)]

    @cached_property
    def _mentions(self) -> frozenset[int]:
        """The lines that mention suppressing, 0 where one may mean the file; only there are comments looked for."""
        text = self.source.data.lower()
        found = [match.start() for word in _MENTIONS for match in word.finditer(text)]
        commands = ((span, command.lower().encode("utf-8", "surrogatepass")) for span, command in self.source.commands)
        found += [
            span.start + m.start() for span, command in commands for word in _MENTIONS for m in word.finditer(command)
        ]
        return frozenset({*map(self.source.line_number, found), *([0] if found and _WHOLE_FILE in text else [])})

    @property
    def mentioned(self) -> bool:
        """Whether anything in the text may be a suppression."""
        return bool(self._mentions)

    @cached_property
    def _by_line(self) -> dict[int, list[Directive]]:
        lines: dict[int, list[Directive]] = {}
        for directive in self.directives:
            lines.setdefault(0 if directive.whole_file else directive.line, []).append(directive)
        return lines

    def silences(self, finding: Finding) -> bool:
        """Whether a comment on any line of the finding's statement, or one for the file, silences it."""
        silent = False
        for directive in self.at(finding):
            words = directive.matching(finding.code, finding.name)
            directive.used.update(words)
            silent = silent or bool(words)
        return silent

    def at(self, finding: Finding) -> Iterator[Directive]:
        """The comments that may silence a finding, by their places."""
        for line in (0, *self.lines(finding)) if self._mentions else ():
            yield from self._by_line.get(line, ()) if line in self._mentions else ()

    def lines(self, finding: Finding) -> list[int]:
        """The lines, from 1, on which a comment silences a finding: those of its statement, and its own."""
        lines: set[int] = set()
        # An `except` or a `case` is no statement, and does not stand in the header of the one it belongs to.
        for span in (finding.statement, finding.span):
            first, last = (self.source.line_number(offset) for offset in (span.start, max(span.start, span.end - 1)))
            lines.update(range(first, last + 1))
        return sorted(lines)

    def _read(self, comment: Span, text: str) -> Iterator[Directive]:
        line = self.source.position(comment.start).line
        for pattern in (_NOQA, _OWN):
            for match in re.finditer(pattern, text):
                written = match["codes"]
                codes = None if written is None else tuple(word for word in re.split(r"[\s,]+", written) if word)
                own = pattern is _OWN
                whole_file = own and match["file"] is not None
                start, end = match.span()
                yield Directive(comment, text, line, start, end, codes, match.span("codes"), own, whole_file, set())
