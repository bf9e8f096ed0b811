"""The parts of a plan: findings and new texts of files, and which files change together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.findings import FileReport, Finding
    from fsdp_migrate.transactions import Transaction
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.settings import Settings


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
        """The new text, None where it is the old one."""
        same = self.failure is not None or self.result.raw == self.before
        return None if same else Change(self.file.shown, self.before, self.result.raw, self.created)


class Part(NamedTuple):
    """Files that change together or not at all; mostly one.

    `transactions` are those of a target: the ones that tie the files or, where nothing is made, that start in them.
    """

    files: tuple[FilePlan, ...]
    transactions: tuple[Transaction, ...] = ()


class CacheError(Exception):
    """A folder for the cache that cannot be used; the message is one line for the user."""
