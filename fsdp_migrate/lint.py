"""Linting one file: a pure function of its bytes and the settings."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from fsdp_migrate.config import Settings
from fsdp_migrate.findings import Applicability, FileReport, Finding, Severity
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.screen import Screen, may_be_unused
from fsdp_migrate.source import Source, SourceError, TooLargeError, declared_encoding, is_notebook, read_source
from fsdp_migrate.torch_api import TorchRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsdp_migrate.facts.elsewhere import Elsewhere
    from fsdp_migrate.rules.entry import Entry

_ESCAPED_BLANK = re.compile(rb"\\[nrt]")


def lint_source(
    source: str | bytes, path: str = "<string>", torch: str | TorchRange | None = None, hints: bool = False
) -> tuple[Finding, ...]:
    """The findings of a source text for the torch releases in `torch` (such as ``">=2.1"``), in order of place.

    Raises:
        RangeError: `torch` is not a range of known releases.
        SourceError: the text cannot be decoded.
    """
    supported = torch if isinstance(torch, TorchRange) else (TorchRange.parse(torch) if torch else TorchRange.default())
    try:
        raw = source if isinstance(source, bytes) else source.encode(declared_encoding(source))
    except UnicodeError as error:
        raise SourceError(f"the text does not fit the encoding that it declares: {error}") from None
    report = lint_bytes(raw, path, Settings(supported, hints=hints))
    if report.error is not None:
        raise SourceError(report.error)
    return tuple(f for f in report.findings if hints or f.severity is not Severity.HINT)


def lint_bytes(raw: bytes, path: str, settings: Settings, elsewhere: Elsewhere | None = None) -> FileReport:
    """The findings of one file, hints included, in order of place.

    A file that cannot be decoded has an `error`; one that does not parse has the finding FSDP001. `elsewhere` answers
    for names of other modules of the project.
    """
    rules = selected_rules(settings)
    if not worth_linting(raw, path, settings) and not (
        elsewhere is not None and worth_linting(elsewhere.written(raw), path, settings)
    ):
        return FileReport(path)
    try:
        source = read_source(raw, path)
    except SourceError as error:
        return FileReport(path, error=str(error))
    # What a notebook says outside of its code does not count.
    if is_notebook(path) and not _screen(settings).passes(source.written):
        return FileReport(path)
    try:
        source.tree  # noqa: B018 - parsing is what may fail
    except SyntaxError as error:
        from fsdp_migrate.rules.unparsable import unparsable

        lines = ("",) if isinstance(error, TooLargeError) else source.text_lines  # of which there may be too many
        return FileReport(path, (unparsable("the file", error, lines, path),))
    try:
        modules = [m for m in source.modules if m is source or _screen(settings).passes(m.written)]
        reports = [_checked(module, modules, path, settings, rules, elsewhere) for module in modules]
    except RecursionError:
        return FileReport(path, error="too deeply nested to analyse")
    if len(reports) == 1:
        return reports[0]
    findings = sorted((f for one in reports for f in one.findings), key=lambda f: (f.span.start, f.code))
    return replace(reports[-1], findings=tuple(findings), suppressed=sum(one.suppressed for one in reports))


def worth_linting(raw: bytes, path: str, settings: Settings) -> bool:
    """Whether a file can hold a finding: the look at its bytes that most files end at."""
    # In the strings of a notebook a newline is two characters, the last of which looks like part of a word.
    notebook = is_notebook(path)
    return _screen(settings).passes(_ESCAPED_BLANK.sub(b"\n", raw) if notebook else raw, loosely=notebook)


@lru_cache(maxsize=16)
def _screen(settings: Settings) -> Screen:
    return Screen(selected_rules(settings))


@lru_cache(maxsize=16)
def selected_rules(settings: Settings) -> tuple[Entry, ...]:
    """The rules that the settings ask for; a neighbour that is named is one no more."""
    entries = (entry for entry in ENTRIES if settings.selected(entry.code))
    return tuple(e._replace(neighbour=False) if e.neighbour and settings.asked_for(e.code) else e for e in entries)


def _checked(
    source: Source,
    modules: Sequence[Source],
    path: str,
    settings: Settings,
    rules: tuple[Entry, ...],
    elsewhere: Elsewhere | None,
) -> FileReport:
    """What one of the modules of a file gives."""
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.facts.distributed import uses_distributed
    from fsdp_migrate.rules.running import findings_of
    from fsdp_migrate.suppressions import Suppressions

    with closing(ModuleFacts(source, path, settings.torch, elsewhere)) as facts:
        in_force = [entry for entry in rules if not entry.neighbour or uses_distributed(facts)]
        findings = [finding for entry in in_force for finding in findings_of(facts, entry)]
        suppressions = Suppressions(source)
        kept = [finding for finding in findings if not suppressions.silences(finding)]
        suppressed = len(findings) - len(kept)
        if may_be_unused(source.data, rules):
            from fsdp_migrate.rules.unused_suppression import unused

            kept += unused(facts, suppressions, {entry.code for entry in in_force})
    if is_notebook(path):
        from fsdp_migrate.notebook.review import reviewed

        kept = reviewed(source, modules, path, kept)
    kept = [_graded(finding, settings) for finding in kept]
    kept.sort(key=lambda finding: (finding.span.start, finding.code))
    report = FileReport(path, tuple(kept), suppressed)
    if elsewhere is None:
        return report
    return replace(report, consulted=tuple(elsewhere.consulted), asked_all=elsewhere.asked_all)


def _graded(finding: Finding, settings: Settings) -> Finding:
    """The finding as the settings trust its fix; one without a fix stays as it is."""
    grade = settings.grade(finding.code)
    if grade is None or finding.fix is None or finding.applicability is grade:
        return finding
    if grade is Applicability.SAFE:
        return replace(finding, applicability=grade, reason=None)
    if grade is Applicability.UNSAFE:
        return replace(finding, applicability=grade, reason="the settings call the fixes of this rule unsafe")
    return replace(finding, applicability=grade, reason="the settings trust no fix of this rule", fix=None)
