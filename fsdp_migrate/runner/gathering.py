"""Gathers the plan of a run: findings, changes and failures, file by file, with their settings and projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNREAD, Finding, Severity
from fsdp_migrate.report import Plan
from fsdp_migrate.torch_api import DEFAULT_RANGE
from fsdp_migrate.workspace.filesystem import REPLACEMENT, Failure
from fsdp_migrate.workspace.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fsdp_migrate.planning.parts import Change, FilePlan, Part, RewriteResult
    from fsdp_migrate.runner.baseline import Baseline
    from fsdp_migrate.torch_api import Statement
    from fsdp_migrate.transactions import Transaction
    from fsdp_migrate.workspace.workspace import Workspace


class Gathered:
    """The plan of the files so far."""

    def __init__(
        self, workspace: Workspace, failures: list[Failure], baselines: dict[Path, Baseline] | None = None
    ) -> None:
        """`baselines` are those that were read already."""
        self.workspace = workspace
        self.failures = failures
        self.baselines = baselines or {}
        self.findings: list[Finding] = []
        self.fixed: list[Finding] = []
        self.changes: list[Change] = []
        self.sources: dict[str, bytes] = {}
        self.across: list[Transaction] = []
        self.fail_on: dict[str, Severity] = {}
        self.real_paths: dict[str, str] = {}
        self.unsafe_fixes: set[str] = set()
        self.stated: dict[str, Statement] = {}
        self.files_checked = 0
        self.suppressed = 0
        self.without_hints = False
        self.unread: dict[str, list[str]] = {}

    def take(self, part: Part) -> None:
        """Take the plan of some files: without hints that are not wanted, and without what their baseline knows.

        Raises:
            FileOptionError: the baseline cannot be read.
        """
        self.across += part.transactions
        for file_plan in part.files:
            self._take_file(file_plan)

    def _take_file(self, file_plan: FilePlan) -> None:
        path = file_plan.file.shown
        if REPLACEMENT in path:
            self.real_paths[path] = file_plan.file.path
        if file_plan.failure is not None:
            self.failures.append(Failure(path, file_plan.failure))
            return
        if file_plan.change is not None:
            self.changes.append(file_plan.change)
        self.fixed += sorted(file_plan.result.fixed, key=lambda finding: finding.place)
        self._take(path, file_plan.settings, file_plan.result)

    def _take(self, path: str, settings: Settings, result: RewriteResult) -> None:
        findings = result.left
        baseline = self.baseline_at(settings.baseline)
        if findings and baseline is not None:
            findings = baseline.unknown(path, result.raw, findings, hints=settings.hints)
        unread = [finding for finding in result.left if finding.code == UNREAD]
        for finding in unread:
            self.unread.setdefault(finding.reason or "", []).append(path)
        shown = [finding for finding in findings if settings.hints or finding.severity is not Severity.HINT]
        self.files_checked += result.error is None and not unread
        self.findings += sorted(shown, key=lambda finding: finding.place)
        self.without_hints |= not settings.hints
        self.suppressed += result.suppressed
        if shown:
            self.sources[path] = result.raw
            self.fail_on[path] = settings.fail_on
            if settings.torch.stated is not None:
                self.stated[path] = settings.torch.stated
            if settings.unsafe_fixes:
                self.unsafe_fixes.add(path)
        if result.error is not None:
            self.failures.append(Failure(path, result.error))

    def baseline_at(self, path: Path | None) -> Baseline | None:
        """The baseline at a path, if there is a path.

        Raises:
            FileOptionError: it cannot be read.
        """
        if path is not None and path not in self.baselines:
            from fsdp_migrate.runner import baseline

            self.baselines[path] = baseline.load(str(path))
        return None if path is None else self.baselines[path]

    def _unread(self) -> Iterator[str]:
        """A line for each reason why YAML was not checked."""
        for reason, paths in self.unread.items():
            what = f"{paths[0]} is" if len(paths) == 1 else f"{len(paths)} files of YAML are"
            yield f"{what} not checked ({UNREAD}; --hints says where): {reason}"

    def plan(self) -> Plan:
        """The whole plan, ready for reports."""
        configuration = self.workspace.configuration
        touched = {path for one in self.across for path in one.fixes}
        for file in self.workspace.files if touched else ():
            if file.shown in touched:
                self.sources.setdefault(file.shown, self.workspace.read(file))
        return Plan(
            torch=str(configuration.options.torch or DEFAULT_RANGE),
            projects=self.workspace.projects,
            config_warnings=(*configuration.files.warnings, *self._unread()),
            findings=tuple(self.findings),
            failures=tuple(self.failures),
            files_checked=self.files_checked,
            suppressed=self.suppressed,
            without_hints=self.without_hints,
            fixed=tuple(self.fixed),
            changes=tuple(self.changes),
            sources=self.sources,
            fail_on=self.fail_on,
            real_paths=self.real_paths,
            unsafe_fixes=frozenset(self.unsafe_fixes),
            stated=self.stated,
            across=tuple(self.across),
            target=configuration.options.target,
        )
