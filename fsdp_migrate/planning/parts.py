"""The parts of a plan: findings and new texts of files, and which files change together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.findings import FileReport, Finding
    from fsdp_migrate.transactions import Transaction
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.settings import Settings


class RewriteResult(NamedTuple):
    """The result of rewriting one file.

    `raw` is the new text, or the old one after an `error`. `fixed` are the findings that are gone, each at the place
    where it was first seen: in the old text, or in a text between if a fix brought it. `left` are the findings of the
    new text. `report` is the lint report, if the text did not change.
    """

    raw: bytes
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    suppressed: int = 0
    error: str | None = None
    report: FileReport | None = None


class Change(NamedTuple):
    """The bytes of one file before and after rewriting; `created` if there was none before."""

    path: str
    before: bytes
    after: bytes
    created: bool = False


class FilePlan(NamedTuple):
    """The plan of one file: its text before, findings and the text after; `failure` tells why there are none.

    A file that is to be `created` has no text before.
    """

    file: SourceFile
    settings: Settings
    before: bytes
    result: RewriteResult
    failure: str | None = None
    created: bool = False

    @property
    def change(self) -> Change | None:
        """The change of the file, None if its text stays."""
        same = self.failure is not None or self.result.raw == self.before
        return None if same else Change(self.file.shown, self.before, self.result.raw, self.created)


class Part(NamedTuple):
    """Files that change together or not at all; mostly one file.

    `transactions` are those of a target. They tie the files together or, if none is made, start in them.
    """

    files: tuple[FilePlan, ...]
    transactions: tuple[Transaction, ...] = ()


class Overlooked(NamedTuple):
    """The files of a run that only others show to be worth a look, and the words that these others give."""

    paths: list[str]
    words: list[str]


class CacheError(Exception):
    """A folder cannot be used for the cache. The message is one line for the user."""
