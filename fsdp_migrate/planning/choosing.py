"""What decides, fix by fix, which of those that could be made are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fsdp_migrate.findings import Finding
    from fsdp_migrate.planning.parts import Change
    from fsdp_migrate.transactions import Transaction


class Chooser(Protocol):
    """Decides about transactions. It may be asked about one several times, and answers as it did first."""

    def takes(self, transaction: Transaction, first: Finding, changes: Callable[[], Sequence[Change]]) -> bool:
        """Whether to make a transaction.

        `first` is its finding as it was before the run changed anything, `changes` what it alone does to the files.
        """

    def silences(self, first: Finding) -> bool:
        """Whether a finding that stays gets a comment that silences it."""
