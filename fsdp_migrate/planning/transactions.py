"""What a plan consists of: transactions, and what they make of each file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from fsdp_migrate.findings import Applicability, FileReport, Finding, Fix

if TYPE_CHECKING:
    from fsdp_migrate.source import Replacement, Source
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.settings import Settings


class Transaction(NamedTuple):
    """Edits in one or several files that solve one problem, made all together or not at all.

    `finding` is the problem. `fixes` are the edits by the paths that findings name; their spans mean the text that the
    transaction was made for. `evidence` says what shows that the result does the same (programs that were run, say).
    `brings` are the codes of findings that the new texts may have beside those of the old ones.
    """

    finding: Finding
    fixes: Mapping[str, Fix]
    evidence: tuple[str, ...] = ()
    brings: frozenset[str] = frozenset()

    @classmethod
    def of(cls, finding: Finding) -> Transaction:
        """The fix of a finding, which has edits in its own file only."""
        return cls(finding, {} if finding.fix is None else {finding.path: finding.fix})

    @property
    def rule(self) -> str:
        """The code of the rule."""
        return self.finding.code

    @property
    def grade(self) -> Applicability:
        """How far the edits can be trusted."""
        return self.finding.applicability

    @property
    def reason(self) -> str:
        """Why it is to be made."""
        return self.finding.message


class RewriteResult(NamedTuple):
    """What rewriting one file gave.

    `raw` is the new text, the old one if there was an `error`. `fixed` are the findings that are gone, at the place
    where each was first seen (the old text, unless another fix brought it up); `left` those of the new text. `report`
    is what lint says of a text that stays as it is.
    """

    raw: bytes
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None
    report: FileReport | None = None


class NewText(NamedTuple):
    """The bytes of a file after some edits, the text in them, and what was put where in UTF-8."""

    raw: bytes
    source: Source
    replacements: list[Replacement]


class Change(NamedTuple):
    """The bytes of one file before and after rewriting."""

    path: str
    before: bytes
    after: bytes


class FilePlan(NamedTuple):
    """What a plan says of one file: its text as it is and as it becomes; `failure` tells why nothing could be said."""

    file: SourceFile
    settings: Settings
    before: bytes
    result: RewriteResult
    failure: str | None = None

    @property
    def change(self) -> Change | None:
        """The new text, None where it is the old one."""
        same = self.failure is not None or self.result.raw == self.before
        return None if same else Change(self.file.shown, self.before, self.result.raw)


class Part(NamedTuple):
    """Files that change together or not at all; mostly one.

    `transactions` are those of a target: the ones that tie the files or, where nothing is made, that start in them.
    """

    files: tuple[FilePlan, ...]
    transactions: tuple[Transaction, ...] = ()
