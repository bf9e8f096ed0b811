"""Edits that solve one problem, in one or several files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fsdp_migrate.findings import Applicability, Finding, Fix
from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.source import Replacement, Source
    from fsdp_migrate.workspace.filesystem import SourceFile


class CreatedFile(NamedTuple):
    """A file that a transaction makes, with its text."""

    file: SourceFile
    text: str


class Transaction(NamedTuple):
    """Edits in one or several files that solve one problem, made all together or not at all.

    `finding` is the problem. `fixes` are the edits by the paths that findings name; their spans mean the text that the
    transaction was made for. `evidence` says what shows that the result does the same (programs that were run, say).
    `brings` are the codes of findings that the new texts may have beside those of the old ones. `creates` are new files
    that the new texts need. In the files `apart` no other transaction that names them is made at the same time, so that
    the next one sees what this one leaves.
    """

    finding: Finding
    fixes: Mapping[str, Fix]
    evidence: tuple[str, ...] = ()
    brings: frozenset[str] = frozenset()
    creates: tuple[CreatedFile, ...] = ()
    apart: frozenset[str] = frozenset()

    @classmethod
    def of(cls, finding: Finding) -> Transaction:
        """The fix of a finding, which has edits in its own file only."""
        return cls(finding, {} if finding.fix is None else {finding.path: finding.fix})

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that change together, as findings name them."""
        return (*self.fixes, *(new.file.shown for new in self.creates))

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


class NewText(NamedTuple):
    """The bytes of a file after some edits, the text in them, and what was put where in UTF-8."""

    raw: bytes
    source: Source
    replacements: list[Replacement]
