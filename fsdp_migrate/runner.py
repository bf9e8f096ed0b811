"""Linting and rewriting many files: one file's trouble never keeps the others from being done."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fsdp_migrate import files
from fsdp_migrate.config import ConfigFileError, Settings
from fsdp_migrate.files import Discovery, Failure, FileError, SourceFile
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.report import Run

if TYPE_CHECKING:
    from fsdp_migrate.projects import Projects


@dataclass(frozen=True)
class Change:
    """The bytes of one file before and after rewriting."""

    path: str
    before: bytes
    after: bytes


@dataclass
class _Gathered:
    """What the files looked at so far gave."""

    settings: Settings
    by_project: bool
    failures: list[Failure]
    projects: Projects | None = None
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)
    files_checked: int = 0
    suppressed: int = 0
    hidden_hints: int = 0

    @contextlib.contextmanager
    def failures_of(self, file: SourceFile) -> Iterator[None]:
        """Note what goes wrong with `file` and go on, even if the fault is this program's."""
        try:
            yield
        except FileError as error:
            self.failures.append(Failure(file.shown, str(error)))
        except ConfigFileError as error:
            # It stands above many files, and is at fault once.
            if (failure := Failure(error.path, str(error))) not in self.failures:
                self.failures.append(failure)
        except Exception as error:
            self.failures.append(Failure(file.shown, _fault(error)))

    def settings_of(self, file: SourceFile) -> Settings:
        """The settings, with the torch range of the file's own project where none was given for all."""
        if not self.by_project:
            return self.settings
        if self.projects is None:
            from fsdp_migrate.projects import Projects  # not needed where no file is worth a closer look

            self.projects = Projects()
        return replace(self.settings, torch=self.projects.of(file).torch)

    def add(
        self,
        file: SourceFile,
        raw: bytes,
        findings: tuple[Finding, ...] = (),
        suppressed: int = 0,
        error: str | None = None,
    ) -> None:
        """Take what one file gave, hints only where they are wanted."""
        shown = [finding for finding in findings if self.settings.hints or finding.severity is not Severity.HINT]
        self.files_checked += error is None
        self.findings += sorted(shown, key=lambda finding: finding.place)
        self.hidden_hints += len(findings) - len(shown)
        self.suppressed += suppressed
        if shown:
            self.sources[file.shown] = raw
        if error is not None:
            self.failures.append(Failure(file.shown, error))

    def run(self) -> Run:
        return Run(
            torch=str(self.settings.torch),
            projects=() if self.projects is None else self.projects.used,
            findings=tuple(self.findings),
            failures=tuple(self.failures),
            files_checked=self.files_checked,
            suppressed=self.suppressed,
            hidden_hints=self.hidden_hints,
            fixed=tuple(self.fixed),
            changed=tuple(self.changed),
            sources=self.sources,
        )


def lint(discovery: Discovery, settings: Settings, *, by_project: bool = False) -> Run:
    """Look for findings in every file, if `by_project` for the torch range of its own project."""
    from fsdp_migrate.lint import lint_bytes, worth_linting

    gathered = _Gathered(settings, by_project, list(discovery.failures))
    for file in discovery.files:
        with gathered.failures_of(file):
            raw = files.read(file)
            if not worth_linting(raw, settings):
                gathered.add(file, raw)
                continue
            report = lint_bytes(raw, file.shown, gathered.settings_of(file))
            gathered.add(file, raw, report.findings, report.suppressed, report.error)
    return gathered.run()


def rewrite(
    discovery: Discovery, settings: Settings, *, write: bool, by_project: bool = False
) -> tuple[Run, tuple[Change, ...]]:
    """Rewrite every file, on disk only if `write`; also gives the texts before and after of those that change."""
    from fsdp_migrate.lint import worth_linting
    from fsdp_migrate.rewrite import rewrite_bytes

    gathered = _Gathered(settings, by_project, list(discovery.failures))
    changes = []
    for file in discovery.files:
        with gathered.failures_of(file):
            raw = files.read(file)
            if not worth_linting(raw, settings):
                gathered.add(file, raw)
                continue
            result = rewrite_bytes(raw, file.shown, gathered.settings_of(file))
            if result.raw != raw:
                if write:
                    files.write(file, result.raw, raw)
                changes.append(Change(file.shown, raw, result.raw))
                gathered.changed.append(file.shown)
                gathered.fixed += sorted(result.fixed, key=lambda finding: finding.place)
            gathered.add(file, result.raw, result.left, result.suppressed, result.error)
    return gathered.run(), tuple(changes)


def torch_ranges(discovery: Discovery, settings: Settings, *, by_project: bool) -> Run:
    """Find the projects of all files and look at nothing else."""
    gathered = _Gathered(settings, by_project, list(discovery.failures))
    for file in discovery.files:
        with gathered.failures_of(file):
            gathered.settings_of(file)
    return gathered.run()


def _fault(error: Exception) -> str:
    import traceback  # only where something is wrong

    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"a fault in fsdp-migrate, please report it: {what} ({where})"
