"""Linting and rewriting many files: one file's trouble never keeps the others from being done."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdp_migrate import files
from fsdp_migrate.config import Settings
from fsdp_migrate.files import Discovery, Failure, FileError, SourceFile
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.report import Run


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
    failures: list[Failure]
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
        except Exception as error:
            self.failures.append(Failure(file.shown, _fault(error)))

    def add(
        self, file: SourceFile, raw: bytes, findings: tuple[Finding, ...], suppressed: int, error: str | None
    ) -> None:
        """Take what one file gave, hints only where they are wanted."""
        shown = [finding for finding in findings if self.settings.hints or finding.severity is not Severity.HINT]
        self.files_checked += error is None
        self.findings += sorted(shown, key=_place)
        self.hidden_hints += len(findings) - len(shown)
        self.suppressed += suppressed
        if shown:
            self.sources[file.shown] = raw
        if error is not None:
            self.failures.append(Failure(file.shown, error))

    def run(self) -> Run:
        return Run(
            torch=str(self.settings.torch),
            findings=tuple(self.findings),
            failures=tuple(self.failures),
            files_checked=self.files_checked,
            suppressed=self.suppressed,
            hidden_hints=self.hidden_hints,
            fixed=tuple(self.fixed),
            changed=tuple(self.changed),
            sources=self.sources,
        )


def lint(discovery: Discovery, settings: Settings) -> Run:
    """Look for findings in every file."""
    from fsdp_migrate.lint import lint_bytes

    gathered = _Gathered(settings, list(discovery.failures))
    for file in discovery.files:
        with gathered.failures_of(file):
            raw = files.read(file)
            report = lint_bytes(raw, file.shown, settings)
            gathered.add(file, raw, report.findings, report.suppressed, report.error)
    return gathered.run()


def rewrite(discovery: Discovery, settings: Settings, *, write: bool) -> tuple[Run, tuple[Change, ...]]:
    """Rewrite every file, on disk only if `write`; also gives the texts before and after of those that change."""
    from fsdp_migrate.rewrite import rewrite_bytes

    gathered = _Gathered(settings, list(discovery.failures))
    changes = []
    for file in discovery.files:
        with gathered.failures_of(file):
            raw = files.read(file)
            result = rewrite_bytes(raw, file.shown, settings)
            if result.raw != raw:
                if write:
                    files.write(file, result.raw, raw)
                changes.append(Change(file.shown, raw, result.raw))
                gathered.changed.append(file.shown)
                gathered.fixed += sorted(result.fixed, key=_place)
            gathered.add(file, result.raw, result.left, result.suppressed, result.error)
    return gathered.run(), tuple(changes)


def _fault(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"a fault in fsdp-migrate, please report it: {what} ({where})"


def _place(finding: Finding) -> tuple[int, int, str]:
    return (finding.line, finding.column, finding.code)
