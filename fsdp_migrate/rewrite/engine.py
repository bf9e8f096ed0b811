"""Passes over one file until nothing is left to fix."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fsdp_migrate.config import Settings
from fsdp_migrate.edits import EditComment, touched
from fsdp_migrate.findings import Applicability, FileReport, Finding, Fix, Severity
from fsdp_migrate.rewrite.selection import edits_of, selected
from fsdp_migrate.rewrite.splicing import Replacement, RewriteError, splice
from fsdp_migrate.rewrite.tracking import first_seen
from fsdp_migrate.source import Source, SourceError, read_source

SPARE_PASSES = 20

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

    Hints are mended only where the settings show them: nothing is rewritten that lint did not speak of. A fix that
    turns out to give a bad text is left out, and its finding says so.
    """
    first = report = lint(raw, path, settings)
    current = raw
    live = [(finding, finding) for finding in report.findings]
    fixed: list[Finding] = []
    refused: list[tuple[Finding, str]] = []
    # Calls inside one another take a pass each.
    most_passes = SPARE_PASSES + len(first.findings)
    try:
        for _ in range(most_passes):
            willing = [f for f, origin in live if _is_shown(f, settings) and _fault_of(origin, refused) is None]
            chosen = [] if report.failed else selected(willing, settings.unsafe_fixes)
            try:
                new, replacements = _applied(current, path, chosen)
            except RewriteError:
                faults = [(finding, fault) for finding in chosen if (fault := _fault_alone(current, path, finding))]
                if not faults:
                    raise
                refused += [(o, fault) for f, o in live if (fault := _fault_of(f, faults)) is not None]
                continue
            if new == current:
                left = tuple(_left_out(finding, _fault_of(origin, refused)) for finding, origin in live)
                return RewriteResult(current, _in_order(fixed), left, report.suppressed, report.error)
            mended = set(chosen)
            fixed += [origin for finding, origin in live if finding in mended]
            waiting = [pair for pair in live if pair[0] not in mended]
            current, report = new, lint(new, path, settings)
            live = first_seen(waiting, replacements, report.findings)
        fault = f"the text still changes after {most_passes} passes"
    except RewriteError as error:
        fault = str(error)
    message = f"internal: {fault}; the file is left as it was, please report this"
    return RewriteResult(raw, left=first.findings, suppressed=first.suppressed, error=message)


def _is_shown(finding: Finding, settings: Settings) -> bool:
    return settings.hints or finding.severity is not Severity.HINT


def _fault_of(finding: Finding, faults: Sequence[tuple[Finding, str]]) -> str | None:
    return next((fault for other, fault in faults if other is finding), None)


def _left_out(finding: Finding, fault: str | None) -> Finding:
    if fault is None:
        return finding
    return replace(finding, applicability=Applicability.MANUAL, reason=fault, fix=None)


def _fault_alone(raw: bytes, path: str, finding: Finding) -> str | None:
    """The reason for leaving a fix out that gives a bad text even when it is applied alone, None if it does not."""
    try:
        _applied(raw, path, [finding])
    except RewriteError as error:
        return error.reason
    return None


def fix_alone(source: Source, path: str, finding: Finding) -> tuple[bytes, list[Replacement]] | None:
    """The file if only `finding` is mended, and what comes where in its text; None without a fix that holds."""
    if finding.fix is None or not finding.fix.edits:
        return None
    try:
        new, changes = _carried_out(source, path, [finding.fix])
    except RewriteError:
        return None
    return new, sorted(changes, key=lambda change: (change.span, change.rank))


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.place))


def _applied(raw: bytes, path: str, chosen: Sequence[Finding]) -> tuple[bytes, list[Replacement]]:
    """The text after one pass, and what was put where in UTF-8."""
    fixes = [finding.fix for finding in chosen if finding.fix is not None]
    return _carried_out(read_source(raw, path), path, fixes) if fixes else (raw, [])


def _carried_out(source: Source, path: str, fixes: Sequence[Fix]) -> tuple[bytes, list[Replacement]]:
    from fsdp_migrate.rewrite.materialise import replacements  # brings LibCST, needed only to change something

    changes: list[Replacement] = []
    comments: list[EditComment] = []
    by_module: dict[Source, list[Fix]] = {}
    for fix in fixes:
        by_module.setdefault(source.module_at(touched(fix.edits[0])[0].start), []).append(fix)
    for module, own in by_module.items():
        edits = edits_of(module, own)
        changes += replacements(module, edits)
        comments += [edit for edit in dict.fromkeys(edits) if isinstance(edit, EditComment)]  # equal edits count once
    return _checked(source, changes, comments, path), changes


def _checked(old: Source, changes: Sequence[Replacement], edited: Sequence[EditComment], path: str) -> bytes:
    """The bytes for the disk of the changed text, which has to parse and have all comments but for those edited.

    Raises:
        RewriteError: it does not, or has.
    """
    try:
        raw = old.encode(splice(old.data, changes), changes)
        new = read_source(raw, path)
        faults = [len(module.broken) for module in new.modules if module.tree]
        before, after = (Counter(text for m in source.modules for _, text in m.comments) for source in (old, new))
    except (SourceError, UnicodeError, SyntaxError, tokenize.TokenError) as error:
        raise RewriteError(f"the new text does not parse ({' '.join(str(error).split())})") from None
    if faults != [len(module.broken) for module in old.modules]:
        raise RewriteError("a cell of the new text does not parse")
    before.subtract(edit.old for edit in edited)
    before.update(edit.text for edit in edited if edit.text)
    if +before != after:
        comment = next(iter((before - after) + (after - before)))
        raise RewriteError(f"the comment {comment!r} would be lost or doubled")
    return raw
