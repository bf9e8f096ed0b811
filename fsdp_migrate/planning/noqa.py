"""Suppressions for findings that are there, so that later runs only report new ones."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable

from fsdp_migrate.findings import UNPARSABLE, UNREAD, UNUSED_SUPPRESSION, Finding
from fsdp_migrate.source import Replacement, Source, Span
from fsdp_migrate.splicing import splice
from fsdp_migrate.suppressions import Directive, Suppressions
from fsdp_migrate.workspace.reading import read_source

# No comment silences the first two, and the third is fixed by taking a comment away.
_NEVER = (UNPARSABLE, UNREAD, UNUSED_SUPPRESSION)


def with_noqa(raw: bytes, findings: Iterable[Finding]) -> bytes:
    """The bytes of a file with a `# noqa` on a line of every finding's statement.

    Raises:
        SourceError: the bytes cannot be read as what the name of the file says.
        RewriteError: a comment cannot be put into a notebook where it belongs.
    """
    reported = [finding for finding in findings if finding.code not in _NEVER]
    if not reported:
        return raw
    source = read_source(raw, reported[0].path)
    changes = insertions(source, reported)
    return source.encode(splice(source.data, changes), changes)


def insertions(source: Source, findings: Iterable[Finding]) -> list[Replacement]:
    """What to put into a text, so that its comments silence these findings; nothing for one that no comment can."""
    by_module: dict[Source, list[Finding]] = {}
    for finding in findings:
        if finding.code not in _NEVER:
            by_module.setdefault(source.module_at(finding.span.start), []).append(finding)
    return [change for module, own in by_module.items() for change in _insertions(module, own)]


def _insertions(source: Source, reported: Iterable[Finding]) -> list[Replacement]:
    suppressions = Suppressions(source)
    open_lines = source.comment_lines
    if open_lines is None:
        open_lines = _lines_for_comments(source)
    wanted: dict[int, set[str]] = {}
    for finding in reported:
        lines = suppressions.lines(finding)
        if any(finding.code in wanted.get(line, ()) for line in lines):
            continue
        own = source.position(finding.span.start).line
        line = next((line for line in lines if line >= own and line in open_lines), None)
        if line is not None:
            wanted.setdefault(line, set()).add(finding.code)
    noqa = {d.line: d for d in suppressions.directives if not d.own and d.codes is not None}
    return [_insertion(source, line, sorted(codes), noqa.get(line)) for line, codes in wanted.items()]


def _insertion(source: Source, line: int, codes: list[str], noqa: Directive | None) -> Replacement:
    """Where to put codes on a line, and as what text: after those of an existing `noqa`, otherwise at the end."""
    if noqa is not None:
        at = noqa.comment.start + len(noqa.text[: noqa.end].encode())
        return Replacement(Span(at, at), "".join(f", {code}" for code in codes))
    at = source.line_starts[line - 1] + len(source.text_lines[line - 1].rstrip().encode())
    return Replacement(Span(at, at), f"  # noqa: {', '.join(codes)}")


def _lines_for_comments(source: Source) -> set[int]:
    """The numbers of lines that can end in a comment: not inside a string or a magic, nor before a backslash."""
    lines: set[int] = set()
    inside: list[Span] = []
    opened: list[int] = []
    remaining = iter(source.text_lines)
    for token in tokenize.generate_tokens(lambda: next(remaining, "")):
        name = tokenize.tok_name[token.type]
        if name in ("NEWLINE", "NL"):
            lines.add(token.start[0])
        elif name in ("FSTRING_START", "TSTRING_START"):  # Python 3.12 and 3.14
            opened.append(token.start[0])
        elif name in ("FSTRING_END", "TSTRING_END"):
            inside.append(Span(opened.pop(), token.end[0]))
    inside += [Span(source.line_number(span.start), source.line_number(span.end) + 1) for span, _ in source.commands]
    # Comments inside the braces of an f-string are an error before Python 3.12.
    return {line for line in lines if not any(span.start <= line < span.end for span in inside)}
