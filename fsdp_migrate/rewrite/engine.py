"""Passes over one file until nothing is left to fix."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsdp_migrate.config import Settings
from fsdp_migrate.findings import FileReport, Finding, Fix, Severity
from fsdp_migrate.rewrite.selection import edits_of, selected
from fsdp_migrate.rewrite.splicing import Replacement, RewriteError, splice
from fsdp_migrate.rewrite.tracking import first_seen
from fsdp_migrate.source import Source, SourceError

MOST_PASSES = 20

Lint = Callable[[bytes, str, Settings], FileReport]


@dataclass(frozen=True)
class RewriteResult:
    """What rewriting one file gave.

    `raw` is the new text, the old one if there was an `error`. `fixed` are the findings that are gone, at the place
    where each was first seen (the old text, unless another fix brought it up); `left` those of the new text.
    """

    raw: bytes
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None


def rewrite(raw: bytes, path: str, settings: Settings, lint: Lint) -> RewriteResult:
    """Apply the fixes that may be applied, and those that these make possible, until the text stays the same.

    Hints are mended only where the settings show them: nothing is rewritten that lint did not speak of.
    """
    first = report = lint(raw, path, settings)
    current = raw
    live = [(finding, finding) for finding in report.findings]
    fixed: list[Finding] = []
    try:
        for _ in range(MOST_PASSES):
            shown = [f for f in report.findings if settings.hints or f.severity is not Severity.HINT]
            chosen = [] if report.failed else selected(shown, settings.unsafe_fixes)
            new, replacements = _applied(current, [f.fix for f in chosen if f.fix is not None])
            if new == current:
                return RewriteResult(current, _in_order(fixed), report.findings, report.suppressed, report.error)
            fixed += [origin for finding, origin in live if finding in chosen]
            waiting = [pair for pair in live if pair[0] not in chosen]
            current, report = new, lint(new, path, settings)
            live = first_seen(waiting, replacements, report.findings)
        fault = f"the text still changes after {MOST_PASSES} passes"
    except RewriteError as error:
        fault = str(error)
    message = f"internal: {fault}; the file is left as it was, please report this"
    return RewriteResult(raw, left=first.findings, suppressed=first.suppressed, error=message)


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column, finding.code)))


def _applied(raw: bytes, fixes: list[Fix]) -> tuple[bytes, list[Replacement]]:
    """The text after one pass, and what was put where in UTF-8."""
    if not fixes:
        return raw, []
    from fsdp_migrate.rewrite.materialise import replacements  # brings LibCST, needed only to change something

    source = Source(raw)
    changes = replacements(source, edits_of(source, fixes))
    return _checked(source, splice(source.data, changes)), changes


def _checked(old: Source, data: bytes) -> bytes:
    """The bytes for the disk of a new text, which has to parse and must have lost no comment.

    Raises:
        RewriteError: it does not, or has.
    """
    try:
        raw = old.encode(data)
        new = Source(raw)
        new.tree  # noqa: B018 - parsing is the check
        before, after = (Counter(text for _, text in source.comments) for source in (old, new))
    except (SourceError, UnicodeEncodeError, SyntaxError, tokenize.TokenError) as error:
        raise RewriteError(f"the new text does not parse ({' '.join(str(error).split())})") from None
    if before != after:
        comment = next(iter((before - after) + (after - before)))
        raise RewriteError(f"the comment {comment!r} would be lost or doubled")
    return raw
