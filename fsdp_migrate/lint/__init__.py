"""Linting one file: a pure function of its bytes and the settings."""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from fsdp_migrate.findings import FileReport, Finding, Severity
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS
from fsdp_migrate.screen import Look, Screen, may_be_unused
from fsdp_migrate.source import (
    Source,
    SourceError,
    TooLargeError,
    declared_encoding,
    is_beside,
    is_notebook,
    is_yaml,
    lines_of,
)
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.settings import Settings
from fsdp_migrate.workspace.settings.settings import default_range

if TYPE_CHECKING:
    from fsdp_migrate.facts import ProjectModules
    from fsdp_migrate.lint.module_check import ModuleCheck
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.trace.seen import Seen


def lint_source(
    source: str | bytes,
    path: str = "<string>",
    torch: str | TorchRange | None = None,
    hints: bool = False,
    target: str | None = None,
) -> tuple[Finding, ...]:
    """The findings of a source text for the torch releases in `torch` (such as ``">=2.1"``), in order of place.

    Raises:
        RangeError: `torch` is not a range of known releases.
        SourceError: the text cannot be decoded.
    """
    supported = (
        torch if isinstance(torch, TorchRange) else (TorchRange.parse(torch) if torch else default_range(target))
    )
    try:
        raw = source if isinstance(source, bytes) else source.encode(declared_encoding(source))
    except UnicodeError as error:
        raise SourceError(f"the text does not fit the encoding that it declares: {error}") from None
    report = lint_bytes(raw, path, Settings(supported, hints=hints, target=target))
    if report.error is not None:
        raise SourceError(report.error)
    return tuple(f for f in report.findings if hints or f.severity is not Severity.HINT)


def lint_bytes(
    raw: bytes,
    path: str,
    settings: Settings,
    project: ProjectModules | None = None,
    *,
    chosen: bool = False,
    seen: Seen | None = None,
) -> FileReport:
    """The findings of one file, hints included, in order of place.

    A file that cannot be decoded has an `error`; one that does not parse has the finding FSDP001. `project` answers
    for names of other modules of the project. A file that was `chosen` is known to be worth it. `seen` is what a run of
    the program showed of these bytes.
    """
    with closing(FileCheck(raw, path, settings, project, chosen=chosen, seen=seen)) as check:
        return check.report()


class FileCheck:
    """One file under the rules, all of them or first those that may fix something. Close it to free its facts.

    `source` is the file's text, None where nothing is worth reading in it or it cannot be read; one that was read
    already may be given.
    """

    def __init__(
        self,
        raw: bytes,
        path: str,
        settings: Settings,
        project: ProjectModules | None = None,
        source: Source | None = None,
        *,
        chosen: bool = False,
        seen: Seen | None = None,
    ) -> None:
        """One that was `chosen` is worth reading."""
        self.source = source
        self._chosen = chosen
        self._seen = None if is_notebook(path) else seen
        self._path = path
        self._settings = settings
        self._project = project
        self._checks: list[ModuleCheck] | None = None
        kept = None if project is None else project.kept(raw)
        self._kept = kept if kept is not None and source in (None, kept.source) else None
        self._report = self._read(raw)

    def close(self) -> None:
        """Let go of the facts."""
        for check in self._checks or ():
            check.close()
        self._checks = None

    def fixable(self) -> FileReport:
        """What the rules find whose fixes may be applied, as in `report`; more where that cannot be told apart."""
        if self._report is not None:
            return self._report
        try:
            checks = self._opened()
            found = checks[0].fixable() if len(checks) == 1 else None
        except RecursionError:
            found = None
        return self.report() if found is None else found

    def report(self) -> FileReport:
        """What all rules find."""
        if self._report is None:
            self._report = self._by_all_rules()
        return self._report

    def _by_all_rules(self) -> FileReport:
        try:
            checks = self._opened()
            modules = [check.source for check in checks]
            reports = [check.report(modules) for check in checks]
        except RecursionError:
            return FileReport(self._path, error="too deeply nested to analyse")
        if len(reports) == 1:
            return reports[0]
        findings = sorted((f for one in reports for f in one.findings), key=lambda f: (f.span.start, f.code))
        return reports[-1]._replace(findings=tuple(findings), suppressed=sum(one.suppressed for one in reports))

    def _read(self, raw: bytes) -> FileReport | None:
        """Read and parse the file; gives the report where no rule is needed for it."""
        path, settings = self._path, self._settings
        if not self._chosen and not worth_linting(raw, path, settings, self._project):
            return FileReport(path)
        try:
            self.source = source = self.source or (self._kept.source if self._kept else read_source(raw, path))
        except SourceError as error:
            if is_yaml(path):
                from fsdp_migrate.rules.unparsable import unread

                return FileReport(path, (unread(SyntaxError(str(error)), ("",), path),))
            return FileReport(path, error=str(error))
        # What a notebook says outside of its code does not count.
        if is_notebook(path) and not self._passes(source.written):
            return FileReport(path)
        try:
            source.tree  # noqa: B018 - parsing is what may fail
        except SyntaxError as error:
            from fsdp_migrate.rules.unparsable import unparsable, unread

            lines = ("",) if isinstance(error, TooLargeError) else source.text_lines  # of which there may be too many
            found = unread(error, lines, path) if is_yaml(path) else unparsable("the file", error, lines, path)
            return FileReport(path, (found,))
        return None

    def _opened(self) -> list[ModuleCheck]:
        if self._checks is None:
            from fsdp_migrate.lint.module_check import ModuleCheck

            assert self.source is not None
            modules = (m for m in self.source.modules if m is self.source or self._passes(m.written))
            self._checks = []
            for module in modules:
                settings = self._settings
                if may_be_unused(module.data, selected_rules(settings)):
                    settings = settings._replace(hints=True)  # A comment that silences a hint is of use.
                rules = selected_rules(settings)
                kept = self._kept if module is self.source else None
                self._checks.append(ModuleCheck(module, self._path, settings, rules, self._project, self._seen, kept))
        return self._checks

    def _passes(self, code: bytes) -> bool:
        """Whether code in the file can hold a finding, what it takes from its project included."""
        return worth_linting(code, "", self._settings, self._project)


def look_at(
    raw: bytes, path: str, settings: Settings, imports: bytes | None = None, *, newest_only: bool = False
) -> Look:
    """The look at a file's bytes that most files end at; `imports` are the lines that import something, where known."""
    if is_beside(path):
        entries = selected_rules(settings)
        found = any(entry.is_beside(raw) for entry in entries) or may_be_unused(raw, entries)
        return Look(found, waits=False, near=False)
    return screen_of(settings, newest_only).look(lines_of(raw, path), imports, loosely=is_notebook(path))


def worth_linting(raw: bytes, path: str, settings: Settings, project: ProjectModules | None = None) -> bool:
    """Whether a file can hold a finding, what it takes from its project included. The torch range is its project's."""
    newest_only = settings.torch.newest_only(settings.seeks_hints)
    look = look_at(raw, path, settings, newest_only=newest_only)
    return look.passes or passes_through(raw, path, settings, project, waits=look.waits, newest_only=newest_only)


def passes_through(
    raw: bytes,
    path: str,
    settings: Settings,
    project: ProjectModules | None,
    *,
    waits: bool,
    newest_only: bool = False,
) -> bool:
    """Whether a file can hold a finding by what it takes from its project, if it `waits` for that or not."""
    code = lines_of(raw, path)
    if project is None:
        from fsdp_migrate.workspace.modules.sketch import Sketch

        return waits and any(not star.startswith("torch.") for star in Sketch(code).stars)
    near = waits and project.may_bring_fsdp(code)
    written = project.written(code)
    # Where nothing comes to it there is nothing to look at again.
    return (near or written != code) and screen_of(settings, newest_only).look(
        written, loosely=is_notebook(path), near=near
    ).passes


@lru_cache(maxsize=16)
def screen_of(settings: Settings, newest_only: bool = False) -> Screen:
    """What files have in common that the rules of some settings can find something in.

    The torch range of the settings does not count, because it may be known only later: `newest_only` is for one that
    is assumed.
    """
    return Screen(selected_rules(settings), newest_only=newest_only, hints=settings.seeks_hints)


def brought_by(code: str, settings: Settings) -> tuple[str, ...]:
    """The codes of findings that a fix of a rule may bring, as its card declares."""
    return next((entry.load().card.brings for entry in selected_rules(settings) if entry.code == code), ())


@lru_cache(maxsize=16)
def selected_rules(settings: Settings) -> tuple[Entry, ...]:
    """The rules that the settings ask for; a neighbour that is named is one no more."""
    of_target = {entry.code: entry for entry in OF_TARGETS.get(settings.target or "", ())}
    entries = (of_target.get(entry.code, entry) for entry in ENTRIES if settings.selected(entry.code))
    if not settings.seeks_hints:
        entries = (entry for entry in entries if not entry.hint)
    return tuple(e._replace(scope="fsdp") if e.is_neighbour and settings.asked_for(e.code) else e for e in entries)
