"""Passes over one file until nothing is left to fix."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, Protocol

from fsdp_migrate.config import Settings
from fsdp_migrate.edits import EditComment, touched
from fsdp_migrate.findings import Applicability, FileReport, Finding, Fix, Severity
from fsdp_migrate.reading import read_source
from fsdp_migrate.rewrite.selection import edits_of, selected
from fsdp_migrate.rewrite.tracking import first_seen
from fsdp_migrate.source import Replacement, Source, SourceError
from fsdp_migrate.splicing import RewriteError, splice
from fsdp_migrate.suppressions import SILENCING

SPARE_PASSES = 20


class FileCheck(Protocol):
    """What lint finds in one text."""

    @property
    def source(self) -> Source | None:
        """The text, if it was read."""

    def mendable(self) -> FileReport:
        """The findings of rules whose fixes may be applied, and maybe others."""

    def report(self) -> FileReport:
        """All findings."""

    def close(self) -> None:
        """Nothing more will be asked."""


# Looks at a file's bytes; the text in them is given if it was read already.
Lint = Callable[[bytes, "Source | None"], FileCheck]


class RewriteResult(NamedTuple):
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
    try:
        return _Rewriting(raw, path, settings, lint).run()
    except RewriteError as error:
        with closing(lint(raw, None)) as check:
            report = check.report()
        message = f"internal: {error}; the file is left as it was, please report this"
        return RewriteResult(raw, left=report.findings, suppressed=report.suppressed, error=message)


class _Rewriting:
    """One file between two passes.

    Rules without a fix that may be applied run only where the others find nothing to mend, so mostly once: on the last
    text. `live` are the findings so far, each with what it was when it was first seen.
    """

    def __init__(self, raw: bytes, path: str, settings: Settings, lint: Lint) -> None:
        self.raw = raw
        self.path = path
        self.settings = settings
        self.lint = lint
        self.source: Source | None = None
        self.fixed: list[Finding] = []
        self.refused: list[tuple[Finding, str]] = []
        self.waiting: list[tuple[Finding, Finding]] = []
        self.replacements: list[Replacement] = []
        self.report = FileReport(path)
        self.complete = False
        self.live: list[tuple[Finding, Finding]] = []

    def run(self) -> RewriteResult:
        """Pass by pass.

        Raises:
            RewriteError: one cannot be carried out, or there is no end of them.
        """
        chosen = self._look()
        # Calls inside one another take a pass each.
        most_passes = SPARE_PASSES + len(self.report.findings)
        for _ in range(most_passes):
            if not chosen:
                return self._result()
            mended = self._pass(chosen)
            chosen = self._look() if mended is None else mended
        raise RewriteError(f"the text still changes after {most_passes} passes")

    def _look(self, all_rules: bool = False) -> list[Finding]:
        """Look at the text; gives the findings to mend next."""
        with closing(self.lint(self.raw, self.source)) as check:
            self._take(check.report() if all_rules else check.mendable(), all_rules)
            chosen = self._chosen()
            if not chosen and not all_rules:
                self._take(check.report(), True)
                chosen = self._chosen()
            self.source = check.source
        return chosen

    def _take(self, report: FileReport, complete: bool) -> None:
        self.report, self.complete = report, complete
        self.live = first_seen(self.waiting, self.replacements, report.findings)

    def _chosen(self) -> list[Finding]:
        willing = [
            finding
            for finding, origin in self.live
            if _is_shown(finding, self.settings) and _fault_of(origin, self.refused) is None
        ]
        return [] if self.report.failed else selected(willing, self.settings.unsafe_fixes)

    def _pass(self, chosen: Sequence[Finding]) -> list[Finding] | None:
        """Mend these findings, or find out which of them cannot be: then it gives those to mend instead."""
        source = self.source or read_source(self.raw, self.path)
        try:
            new, self.source, replacements = _carried_out(source, self.path, chosen)
        except RewriteError:
            if not self.complete:  # findings are refused as the whole report has them
                return self._look(all_rules=True)
            faults = [(finding, fault) for finding in chosen if (fault := _fault_alone(source, self.path, finding))]
            if not faults:
                raise
            self.refused += [(o, fault) for f, o in self.live if (fault := _fault_of(f, faults)) is not None]
            return self._chosen()
        if new == self.raw:
            return [] if self.complete else self._look(all_rules=True)
        mended = set(chosen)
        self.fixed += [origin for finding, origin in self.live if finding in mended]
        self.waiting = [pair for pair in self.live if pair[0] not in mended]
        self.raw, self.replacements = new, replacements
        return None

    def _result(self) -> RewriteResult:
        left = tuple(_left_out(finding, _fault_of(origin, self.refused)) for finding, origin in self.live)
        return RewriteResult(self.raw, _in_order(self.fixed), left, self.report.suppressed, self.report.error)


def _is_shown(finding: Finding, settings: Settings) -> bool:
    return settings.hints or finding.severity is not Severity.HINT


def _fault_of(finding: Finding, faults: Sequence[tuple[Finding, str]]) -> str | None:
    return next((fault for other, fault in faults if other is finding), None)


def _left_out(finding: Finding, fault: str | None) -> Finding:
    if fault is None:
        return finding
    return replace(finding, applicability=Applicability.MANUAL, reason=fault, fix=None)


def _fault_alone(source: Source, path: str, finding: Finding) -> str | None:
    """The reason for leaving a fix out that gives a bad text even when it is applied alone, None if it does not."""
    try:
        _carried_out(source, path, [finding])
    except RewriteError as error:
        return error.reason
    return None


def fix_alone(source: Source, path: str, finding: Finding) -> tuple[bytes, list[Replacement]] | None:
    """The file if only `finding` is mended, and what comes where in its text; None without a fix that holds."""
    if finding.fix is None or not finding.fix.edits:
        return None
    try:
        new, _, changes = _carried_out(source, path, [finding])
    except RewriteError:
        return None
    return new, sorted(changes, key=lambda change: (change.span, change.rank))


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.place))


def _carried_out(source: Source, path: str, chosen: Sequence[Finding]) -> tuple[bytes, Source, list[Replacement]]:
    """The file after one pass, the text in it, and what was put where in UTF-8.

    Raises:
        RewriteError: the new text does not parse, or does not have all comments.
    """
    from fsdp_migrate.rewrite.materialise import replacements  # needed only to change something

    changes: list[Replacement] = []
    comments: list[EditComment] = []
    by_module: dict[Source, list[Fix]] = {}
    for fix in (finding.fix for finding in chosen if finding.fix is not None):
        by_module.setdefault(source.module_at(touched(fix.edits[0])[0].start), []).append(fix)
    for module, own in by_module.items():
        edits = edits_of(module, own)
        changes += replacements(module, edits)
        comments += [edit for edit in dict.fromkeys(edits) if isinstance(edit, EditComment)]  # equal edits count once
    return *_checked(source, changes, comments, path), changes


def _checked(
    old: Source, changes: Sequence[Replacement], edited: Sequence[EditComment], path: str
) -> tuple[bytes, Source]:
    """The bytes for the disk of the changed text, which has to parse and have all comments but for those edited.

    Only what silences a tool may be there once more: where an import is split, each part needs it.

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
    before = +before
    doubled = [text for text in after - before if not SILENCING.match(text)]
    for comment in [*(before - after), *doubled]:
        raise RewriteError(f"the comment {comment!r} would be lost or doubled")
    return raw, new
