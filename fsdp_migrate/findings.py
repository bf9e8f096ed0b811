"""Findings of rules: a place, a message, and the fix if there is one."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.edits import Edit, RemovedUse
    from fsdp_migrate.source import Span


class Severity(str, Enum):
    """What happens on the supported torch range, the worst first."""

    BREAKS = "breaks"
    CHANGES = "changes"
    DEPRECATED = "deprecated"
    HINT = "hint"


class Applicability(str, Enum):
    """How far a fix can be trusted; `MANUAL` means that there is none."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MANUAL = "manual"


class Fix(NamedTuple):
    """The edits that fix one finding, applied all together or not at all.

    `releases` are the uses of imported names that they take away. `moves` are imports that the edits only bring up
    to date, each a statement and a name: if the fixes of a pass leave all of them unused, the imports go and the edits
    are not needed. `comments`
    are those that the edits write beside the old ones.
    """

    edits: tuple[Edit, ...]
    removed_uses: tuple[RemovedUse, ...] = ()
    moves: tuple[tuple[Span, str], ...] = ()
    comments: tuple[str, ...] = ()


class Finding(NamedTuple):
    """One problem at one place.

    `span` is where it is (bytes); `statement` is the statement header it belongs to, whose lines may carry a
    suppression comment. `reason` says why the finding is not safe to fix, and is None exactly for safe ones. `settled`
    is the oldest torch with which nothing is left to do here, if no older one is supported; None where no floor helps.
    Lines and columns count from 1, columns in code points; the end is exclusive. In a notebook they count within the
    cell that is number `cell`, of all kinds of cells, from 1; elsewhere `cell` is None.

    With a trace, `ran` says whether the code of the place ran, None where that is not known; what only the run shows is
    found `by_run`.
    """

    code: str
    name: str
    message: str
    severity: Severity
    applicability: Applicability
    reason: str | None
    path: str
    span: Span
    statement: Span
    line: int
    column: int
    end_line: int
    end_column: int
    url: str | None = None
    cell: int | None = None
    settled: str | None = None
    ran: bool | None = None
    by_run: bool = False
    fix: Fix | None = None

    # Two findings are the same whatever their fixes are.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finding) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    @property
    def place(self) -> tuple[int, int, int, str]:
        """What puts the findings of one file into the order in which people read them."""
        return (self.cell or 0, self.line, self.column, self.code)


class Consulted(NamedTuple):
    """Another file that a report depends on, by its absolute path, and a digest of the bytes that were looked at."""

    path: str
    digest: str


class FileReport(NamedTuple):
    """What linting one file gave: findings in order of place, and how many a comment suppressed.

    `consulted` are the files that it looked into besides its own, the modules that it imports; which modules there are
    depends on the files of the project as well. `asked_all` says that it asked which files import it, and so may
    change with any file of the run; `asked_beyond`, with others of its project.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None
    consulted: tuple[Consulted, ...] = ()
    asked_all: bool = False
    asked_beyond: bool = False

    @property
    def failed(self) -> bool:
        """Whether the file could not be read or parsed (exit code 3)."""
        return self.error is not None or any(finding.code == UNPARSABLE for finding in self.findings)


UNPARSABLE = "FSDP001"
UNUSED_SUPPRESSION = "FSDP002"
# YAML that is left out; nothing fails for it.
UNREAD = "FSDP859"
