"""The plan of a run, which every command reads. The reports beside this file know nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fsdp_migrate.findings import UNPARSABLE, Applicability, Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Source, SourceError
from fsdp_migrate.workspace.filesystem import Failure
from fsdp_migrate.workspace.reading import read_source
from fsdp_migrate.workspace.settings import Project

if TYPE_CHECKING:
    from fsdp_migrate.planning.parts import Change
    from fsdp_migrate.report.floor_summary import FloorSummary
    from fsdp_migrate.torch_api import Statement
    from fsdp_migrate.transactions import NewText, Transaction


_NONE: Mapping[str, Any] = MappingProxyType({})


class Tally(NamedTuple):
    """How many findings there are (hints apart), by what can be done about them."""

    findings: int
    safe: int
    unsafe: int
    manual: int
    hints: int


class Known(NamedTuple):
    """How many findings of a plan a baseline knows, and a line for each of its entries that no longer occurs."""

    path: str
    findings: int
    gone: tuple[str, ...] = ()


class Traced(NamedTuple):
    """What a trace was good for: the places of its calls, how many of them are in no file of the run.

    `left_out` are those in files that `changed` since.
    """

    places: int
    elsewhere: int
    left_out: int
    changed: tuple[str, ...]


class Plan(NamedTuple):
    """Findings in a set of files, and the transactions that solve them.

    `torch` is the range asked for. Files of `projects` were judged by the ranges of these instead. `config_warnings`
    tell of configuration that does not count.

    `findings` are in order of place. For a rewrite they are what is left, with positions in the new text; `fixed` are
    what it fixed (or would), with positions in the old text, and `changes` the files before and after. `across` are
    transactions over several files. The transaction of any other finding is its fix.

    `sources` holds the text of every file with findings, and `fail_on` the least severe finding in it that makes the
    run fail. In the files of `unsafe_fixes` the settings let a rewrite apply unsafe fixes. `known` has the baselines
    that were used; their findings are not among `findings`. `real_paths` has the path on disk where the shown one
    differs. `stated` is where the projects of files with findings state what they support. `target` is the one that
    the command line names; `traced` what became of the trace that was given.
    """

    torch: str
    projects: tuple[Project, ...] = ()
    config_warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()
    files_checked: int = 0
    suppressed: int = 0
    without_hints: bool = False
    fixed: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    sources: Mapping[str, bytes] = _NONE
    fail_on: Mapping[str, Severity] = _NONE
    known: tuple[Known, ...] = ()
    real_paths: Mapping[str, str] = _NONE
    unsafe_fixes: frozenset[str] = frozenset()
    stated: Mapping[str, Statement] = _NONE
    across: tuple[Transaction, ...] = ()
    target: str | None = None
    traced: Traced | None = None

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that a rewrite changed (or would)."""
        return tuple(change.path for change in self.changes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be understood besides the code, with the file."""
        return (*self.config_warnings, *(warning for project in self.projects for warning in project.warnings))

    @property
    def floors(self) -> tuple[FloorSummary, ...]:
        """The lower bounds of torch that would settle findings if they were raised."""
        if not self.stated:
            return ()
        from fsdp_migrate.report.floor_summary import summaries  # needed only where something is reported

        return summaries(self.findings, self.stated)

    @property
    def tally(self) -> Tally:
        """The numbers of findings."""
        real = [finding.applicability for finding in self.findings if finding.severity is not Severity.HINT]
        return Tally(
            findings=len(real),
            safe=real.count(Applicability.SAFE),
            unsafe=real.count(Applicability.UNSAFE),
            manual=real.count(Applicability.MANUAL),
            hints=len(self.findings) - len(real),
        )

    @property
    def agreed_unsafe(self) -> int:
        """How many findings have an unsafe fix that the settings allow."""
        unsafe = (f for f in self.findings if f.applicability is Applicability.UNSAFE)
        return sum(f.severity is not Severity.HINT and f.path in self.unsafe_fixes for f in unsafe)

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """The transactions of what was fixed (or would be), then those of the findings."""
        found = (self.transaction(finding) for finding in (*self.fixed, *self.findings))
        return tuple(one for one in found if one.fixes)

    def transaction(self, finding: Finding) -> Transaction:
        """The transaction of a finding; it has no edits if nothing solves the finding."""
        from fsdp_migrate.transactions import Transaction  # most reports show no edits

        return next((one for one in self.across if one.finding == finding), Transaction.of(finding))

    def texts_of(
        self, finding: Finding, source_of: Callable[[str], Source | None] | None = None
    ) -> dict[str, NewText] | None:
        """The new texts if only this finding is solved; None if nothing solves it.

        `source_of` gives the texts of files, for callers that ask about several findings.
        """
        transaction = self.transaction(finding)
        if not transaction.fixes:
            return None
        from fsdp_migrate.planning.passes import texts_of

        return texts_of(transaction, source_of or self.source)

    def by_file(self) -> Iterator[tuple[list[Finding], list[Finding]]]:
        """The findings that were fixed and those that are left, file by file in order of path."""
        files: dict[str, tuple[list[Finding], list[Finding]]] = {}
        for finding in self.fixed:
            files.setdefault(finding.path, ([], []))[0].append(finding)
        for finding in self.findings:
            files.setdefault(finding.path, ([], []))[1].append(finding)
        yield from (files[path] for path in sorted(files, key=lambda path: path.split(os.sep)))

    def source(self, path: str) -> Source | None:
        """The text that the findings of `path` are about, None if there is none or it cannot be decoded."""
        raw = self.sources.get(path)
        return None if raw is None else source_of(raw, path)

    @property
    def failed(self) -> bool:
        """Whether some file could not be read, parsed or written."""
        return bool(self.failures) or any(finding.code == UNPARSABLE for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0 nothing to report, 1 findings that make the run fail, 3 some file failed."""
        return 3 if self.failed else int(any(self.fails(finding) for finding in self.findings))

    def fails(self, finding: Finding) -> bool:
        """Whether a finding makes the run fail."""
        order = list(Severity)
        least = self.fail_on.get(finding.path, Severity.DEPRECATED)
        return order.index(finding.severity) <= order.index(least)


def source_of(raw: bytes, path: str) -> Source | None:
    """The text of a file, None if it cannot be decoded."""
    try:
        return read_source(raw, path)
    except SourceError:
        return None
