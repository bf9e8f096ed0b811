"""Fixes one file, pass by pass, until nothing is left to fix."""

from __future__ import annotations

import ast
import copy
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Protocol

from fsdp_migrate.edits import EditComment, EditImport, RemoveStatement, touched
from fsdp_migrate.facts.calls import given_twice, names_given
from fsdp_migrate.findings import Applicability, FileReport, Finding, Fix, Severity
from fsdp_migrate.lint import brought_by
from fsdp_migrate.planning.choosing import Chooser
from fsdp_migrate.planning.drafts import Draft
from fsdp_migrate.planning.parts import Change, RewriteResult
from fsdp_migrate.planning.selection import edits_of, selected
from fsdp_migrate.source import Replacement, Source, SourceError
from fsdp_migrate.splicing import RewriteError, splice
from fsdp_migrate.suppressions import is_silencing
from fsdp_migrate.transactions import NewText, Transaction
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.settings import Settings

SPARE_PASSES = 20


class OpenCheck(Protocol):
    """Lints one text."""

    @property
    def source(self) -> Source | None:
        """The text, if it was read."""

    def fixable(self) -> FileReport:
        """The findings of rules whose fixes may be applied; maybe others, too."""

    def report(self) -> FileReport:
        """All findings."""

    def close(self) -> None:
        """Free the facts; nothing more is asked."""


# Looks at a file's bytes; the text in them is given if it was read already.
Lint = Callable[[bytes, "Source | None"], OpenCheck]


def rewrite(
    raw: bytes,
    path: str,
    settings: Settings,
    lint: Lint,
    progress: Draft | None = None,
    chooser: Chooser | None = None,
) -> RewriteResult:
    """Apply the fixes that may be applied, and those that these make possible, until the text stays the same.

    Hints are fixed only where the settings show them: only findings that lint reports are rewritten. A fix that
    gives a bad text, or a finding that its rule does not declare, is left out, and its finding says so. What was done
    to the text already is in `progress`. Of the fixes that could be made a `chooser` takes some.
    """
    start = Draft(raw) if progress is None else progress
    raw = start.raw
    try:
        rewriting = _Rewriting(copy.copy(start), path, settings, lint, chooser)
        result = rewriting.run()
        return _Rewriting(start, path, settings, lint, chooser, careful=True).run() if rewriting.brought() else result
    except RewriteError as error:
        with closing(lint(raw, None)) as check:
            report = check.report()
        message = f"internal: {error}; the file was not changed, please report this"
        return RewriteResult(raw, left=report.findings, suppressed=report.suppressed, error=message)


class BringsFindingError(RewriteError):
    """A fix whose new text has a finding that its rule does not declare."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"it would add {finding.code} ({finding.name})")

    @property
    def reason(self) -> str:
        """Why the fix was left out, for the user."""
        return f"not made: {self}"


def brought(
    before: Iterable[Finding], fixed: Iterable[Finding], after: Iterable[Finding], settings: Settings
) -> list[Finding]:
    """The findings of a new text that are neither in the old one nor declared by a rule of the `fixed`.

    They are counted by code, since a fix may move any of them.
    """
    known, fixed = set(before), set(fixed)
    left = Counter(finding.code for finding in known)
    left.subtract(finding.code for finding in fixed & known)
    declared = {code for finding in fixed for code in brought_by(finding.code, settings)}
    found = []
    for finding in after:
        left[finding.code] -= 1
        if left[finding.code] < 0 and finding.code not in declared:
            found.append(finding)
    return found


class _Rewriting:
    """Rewrites one file.

    Rules without applicable fixes only run on the first text, and when no fix is left to apply: mostly twice. If
    `careful`, every pass is checked for new findings before it is made.
    """

    def __init__(
        self,
        progress: Draft,
        path: str,
        settings: Settings,
        lint: Lint,
        chooser: Chooser | None,
        *,
        careful: bool = False,
    ) -> None:
        self.text = progress
        self.path = path
        self.settings = settings
        self.lint = lint
        self.chooser = chooser
        self.careful = careful
        self.before: Sequence[Finding] | None = None
        self.refused: dict[int, tuple[Finding, str]] = {}  # by the identity of findings in their first form
        self.report = FileReport(path)
        self.complete = False
        self.changed = False

    def run(self) -> RewriteResult:
        """Apply pass after pass.

        Raises:
            RewriteError: one cannot be carried out, or there is no end of them.
        """
        chosen = self._look()
        # Calls inside one another take a pass each.
        most_passes = SPARE_PASSES + len(self.report.findings)
        for _ in range(most_passes):
            if not chosen:
                self._silence()
                return self._result()
            left = self._pass(chosen)
            chosen = self._look() if left is None else left
        raise RewriteError(f"the text still changes after {most_passes} passes")

    def brought(self) -> list[Finding]:
        """The findings of the last text that no rule declares."""
        left = [finding for finding, _ in self.text.live]
        return brought(self.before or (), self.text.fixed, left, self.settings) if self.changed else []

    def _look(self, all_rules: bool = False) -> list[Finding]:
        """Lint the text, and return the findings to fix next."""
        all_rules = all_rules or self.careful
        with closing(self.lint(self.text.raw, self.text.source)) as check:
            self._take(check.report() if all_rules else check.fixable(), all_rules)
            chosen = self._chosen()
            if not chosen and not all_rules:
                self._take(check.report(), True)
                chosen = self._chosen()
            if self.before is None:
                self.before = check.report().findings
            self.text.source = check.source
        return chosen

    def _take(self, report: FileReport, complete: bool) -> None:
        self.report, self.complete = report, complete
        self.text.see(report.findings)

    def _chosen(self) -> list[Finding]:
        willing = [
            finding
            for finding, origin in self.text.live
            if _is_shown(finding, self.settings) and id(origin) not in self.refused
        ]
        if self.report.failed:
            return []
        while declined := self._declined(chosen := selected(willing, self.settings.unsafe_fixes)):
            willing = [finding for finding in willing if finding not in declined]
        return chosen

    def _declined(self, chosen: Sequence[Finding]) -> list[Finding]:
        """The findings whose fixes the chooser does not take."""
        if self.chooser is None:
            return []
        first = dict(self.text.live)
        return [finding for finding in chosen if not self._is_taken(self.chooser, finding, first[finding])]

    def _is_taken(self, chooser: Chooser, finding: Finding, first: Finding) -> bool:
        source = self.text.source or read_source(self.text.raw, self.path)
        try:
            new = carried_out(source, self.path, _fixes([finding]))
        except RewriteError:
            return True  # it is refused when it is made, with the reason
        change = Change(self.path, self.text.raw, new.raw)
        return chooser.takes(Transaction.of(finding), first, lambda: (change,))

    def _silence(self) -> None:
        """Put a comment at the findings that the chooser silences."""
        silenced = [finding for finding, first in self.text.live if self.chooser and self.chooser.silences(first)]
        if not silenced:
            return
        from fsdp_migrate.planning.noqa import insertions  # only where somebody is asked

        source = self.text.source or read_source(self.text.raw, self.path)
        if comments := insertions(source, silenced):
            raw = source.encode(splice(source.data, comments), comments)
            self.text.change(NewText(raw, read_source(raw, self.path), comments), ())
            self.changed = True
            self._look(all_rules=True)

    def _pass(self, chosen: Sequence[Finding]) -> list[Finding] | None:
        """Fix these findings, or return the ones to fix instead if some cannot be fixed."""
        source = self.text.source or read_source(self.text.raw, self.path)
        try:
            new = self._carried_out(source, chosen)
        except RewriteError:
            if not self.complete:  # findings are refused as the whole report has them
                return self._look(all_rules=True)
            faults = dict(self._faults(source, chosen))
            if not faults and self.careful:
                return list(chosen[:1])
            if not faults:
                raise
            self.refused.update((id(o), (o, faults[id(f)])) for f, o in self.text.live if id(f) in faults)
            return self._chosen()
        if new.raw == self.text.raw:
            return [] if self.complete else self._look(all_rules=True)
        self.text.change(new, chosen)
        self.changed = True
        return None

    def _carried_out(self, source: Source, chosen: Sequence[Finding]) -> NewText:
        """The text after fixing some findings.

        Raises:
            RewriteError: it is a bad one, or has a finding that no rule declares.
        """
        new = carried_out(source, self.path, _fixes(chosen))
        if self.careful:
            with closing(self.lint(new.raw, None)) as check:
                found = brought(self.report.findings, chosen, check.report().findings, self.settings)
            if found:
                raise BringsFindingError(found[0])
        return new

    def _faults(self, source: Source, chosen: Sequence[Finding]) -> Iterator[tuple[int, str]]:
        """The findings whose fixes are refused even if they are applied alone, with the reasons.

        They are searched by halves: of many fixes few are refused, and trying one takes as long as reading the file.
        """
        try:
            self._carried_out(source, chosen)
        except RewriteError as error:
            if len(chosen) == 1:
                yield id(chosen[0]), error.reason
                return
            middle = len(chosen) // 2
            yield from self._faults(source, chosen[:middle])
            yield from self._faults(source, chosen[middle:])

    def _result(self) -> RewriteResult:
        left = tuple(_left_out(finding, self.refused.get(id(origin))) for finding, origin in self.text.live)
        same = None if self.changed or self.refused else self.report
        fixed = _in_order(self.text.fixed)
        return RewriteResult(self.text.raw, fixed, left, self.report.suppressed, self.report.error, same)


def _is_shown(finding: Finding, settings: Settings) -> bool:
    return settings.hints or finding.severity is not Severity.HINT


def _left_out(finding: Finding, refused: tuple[Finding, str] | None) -> Finding:
    if refused is None:
        return finding
    return finding._replace(applicability=Applicability.MANUAL, reason=refused[1], fix=None)


def _fixes(findings: Iterable[Finding]) -> list[Fix]:
    return [finding.fix for finding in findings if finding.fix is not None]


def texts_of(transaction: Transaction, source_of: Callable[[str], Source | None]) -> dict[str, NewText] | None:
    """The new texts of a transaction that is made alone; None if it has no edits or cannot be made."""
    texts = {}
    for path, fix in transaction.fixes.items():
        source = source_of(path)
        try:
            new = None if source is None or not fix.edits else carried_out(source, path, [fix])
        except RewriteError:
            return None
        if new is not None:
            texts[path] = new._replace(replacements=sorted(new.replacements, key=lambda one: (one.span, one.rank)))
    return texts or None


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.place))


def carried_out(source: Source, path: str, fixes: Iterable[Fix]) -> NewText:
    """The new text of a file with these fixes.

    Raises:
        RewriteError: the new text does not parse, does not have all comments, or gives an argument twice.
    """
    # Needed only to change something.
    from fsdp_migrate.planning.repeats import without_repeats
    from fsdp_migrate.rewrite.materialise import replacements

    changes: list[Replacement] = []
    comments: list[EditComment] = []
    gone: list[str] = []
    written: list[str] = []
    by_module: dict[Source, list[Fix]] = {}
    for fix in (one for one in fixes if one.edits):
        by_module.setdefault(source.module_at(touched(fix.edits[0])[0].start), []).append(fix)
    for module, own in by_module.items():
        edits = edits_of(module, own)
        changes += replacements(module, edits)
        comments += [edit for edit in dict.fromkeys(edits) if isinstance(edit, EditComment)]  # equal edits count once
        for edit in dict.fromkeys(edits):
            gone += (edit.comments or ()) if isinstance(edit, (EditImport, RemoveStatement)) else ()
        written += [text for fix in own for text in fix.comments]
    gone += [edit.old for edit in comments]
    written += [edit.text for edit in comments if edit.text]
    changes = without_repeats(source.data, changes)
    return NewText(*_checked(source, changes, gone, written, path), changes)


def _checked(
    old: Source, changes: Sequence[Replacement], gone: Sequence[str], written: Sequence[str], path: str
) -> tuple[bytes, Source]:
    """The changed text and its bytes, checked.

    It has to parse, and to have all comments except those `gone`, and no new ones except those `written`. No call may
    give an argument twice. A comment that silences a tool may occur more often: if an import is split, each part needs
    it.

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
    before.subtract(gone)
    before.update(written)
    before = +before
    doubled = [text for text in after - before if not is_silencing(text)]
    for comment in [*(before - after), *doubled]:
        raise RewriteError(f"the new text would lose or repeat the comment {comment!r}")
    if (twice := Counter(_given_twice(new))) and (twice := twice - Counter(_given_twice(old))):
        raise RewriteError(f"a call would give `{min(twice)}` twice")
    return raw, new


def _given_twice(source: Source) -> Iterator[str]:
    """Keywords that a call gives twice, directly or by a dict. That parses, but does not compile."""
    for module in source.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and node.keywords:
                yield from given_twice(name for keyword in node.keywords for name in names_given(keyword))
