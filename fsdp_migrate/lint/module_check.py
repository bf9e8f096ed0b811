"""The rules on one module of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.distributed import LAUNCHER, uses_distributed
from fsdp_migrate.findings import Applicability, FileReport, Finding
from fsdp_migrate.rules.running import findings_of
from fsdp_migrate.screen import may_be_unused
from fsdp_migrate.source import is_notebook
from fsdp_migrate.suppressions import Suppressions

if TYPE_CHECKING:
    from fsdp_migrate.facts import ProjectModules
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.source import Source
    from fsdp_migrate.trace.seen import Seen
    from fsdp_migrate.workspace.settings import Settings


class ModuleCheck:
    """One module with its facts; each rule runs once, when it is first asked for. Close it to let go of the facts."""

    def __init__(
        self,
        source: Source,
        path: str,
        settings: Settings,
        rules: Sequence[Entry],
        project: ProjectModules | None,
        seen: Seen | None = None,
        kept: ModuleFacts | None = None,
    ) -> None:
        """Take in the module, with what a run of it showed; its nodes are those of facts that are `kept`.

        Raises:
            RecursionError: it is nested too deeply.
        """
        self.source = source
        self.path = path
        self.settings = settings
        self.rules = tuple(rules)
        self.project = project
        self.seen = seen
        hints = settings.seeks_hints
        self.facts = ModuleFacts(source, path, settings.torch, project, hints=hints, seen=seen, known=kept)
        self.suppressions = Suppressions(source)

    def close(self) -> None:
        """Let go of the facts."""
        self.facts.close()

    def fixable(self) -> FileReport | None:
        """What the rules find whose fixes may be applied, in order; None where all have to speak for it."""
        if is_notebook(self.path) or may_be_unused(self.source.data, self.rules):
            return None
        entries = [entry for entry in self.rules if may_fix(entry, self.settings)]
        return FileReport(self.path, self._in_order(self._kept(self._found(entries))))

    def report(self, modules: Sequence[Source]) -> FileReport:
        """What all rules find; `modules` are those of the file."""
        found = self._found(self.rules)
        if self.seen is not None and self.seen.calls:
            from fsdp_migrate.trace.unseen import unseen

            found += unseen(self.facts, self.rules, found, self.seen)
        kept = self._kept(found)
        suppressed = len(found) - len(kept)
        if may_be_unused(self.source.data, self.rules):
            from fsdp_migrate.rules.unused_suppression import unused

            kept += unused(self.facts, self.suppressions, self._in_force(self.rules))
        if is_notebook(self.path):
            from fsdp_migrate.workspace.notebook.review import reviewed

            kept = reviewed(self.source, modules, self.path, kept)
        report = FileReport(self.path, self._in_order(kept), suppressed)
        if self.project is None:
            return report
        project = self.project
        consulted, asked_all, asked_beyond = project.consulted, project.asked_all, project.asked_beyond
        return report._replace(consulted=tuple(consulted), asked_all=asked_all, asked_beyond=asked_beyond)

    def _in_force(self, entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if not entry.is_neighbour or self._uses_distributed(entry)]

    def _uses_distributed(self, entry: Entry) -> bool:
        """Whether the module has to do with torch.distributed, as far as one rule is concerned."""
        is_launched = entry.scope == "launched" and LAUNCHER in self.source.written
        return is_launched or uses_distributed(self.facts)

    def _found(self, entries: Iterable[Entry]) -> list[Finding]:
        return [finding for entry in self._in_force(entries) for finding in findings_of(self.facts, entry)]

    def _kept(self, found: Iterable[Finding]) -> list[Finding]:
        """What no comment silences."""
        kept = [finding for finding in found if not self.suppressions.silences(finding)]
        if not self.suppressions.mentioned:
            return kept
        from fsdp_migrate.rules.unknown_codes import without_doubtful_fix

        return [without_doubtful_fix(finding, self.suppressions) for finding in kept]

    def _in_order(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        ordered = (graded(finding, self.settings) for finding in findings)
        if self.seen is not None:
            seen = self.seen
            ordered = (finding._replace(ran=seen.ran(finding)) for finding in ordered)
        return tuple(sorted(ordered, key=lambda finding: (finding.span.start, finding.code)))


def may_fix(entry: Entry, settings: Settings) -> bool:
    """Whether `rewrite` may apply a fix of the rule."""
    if not entry.fixes:
        return False
    grade = settings.grade(entry.code)
    grades = entry.fixes if grade is None else (grade.value,)
    return Applicability.SAFE.value in grades or (settings.unsafe_fixes and Applicability.UNSAFE.value in grades)


def graded(finding: Finding, settings: Settings) -> Finding:
    """The finding as the settings trust its fix; one without a fix stays as it is."""
    grade = settings.grade(finding.code)
    if grade is None or finding.fix is None or finding.applicability is grade:
        return finding
    if grade is Applicability.SAFE:
        return finding._replace(applicability=grade, reason=None)
    if grade is Applicability.UNSAFE:
        return finding._replace(applicability=grade, reason="the settings grade the fixes of this rule as unsafe")
    return finding._replace(
        applicability=grade, reason=("the settings grade the fixes of this rule as manual"), fix=None
    )
