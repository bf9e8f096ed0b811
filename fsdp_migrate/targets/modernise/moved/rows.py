"""What a row of the tables of moved names says, and how rows for several names of a module are written."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.records import NamedTuple

ROOT = "torch.distributed"

FLAT_PARAMETER = "FSDP303"
FLATTENED = "FSDP304"
DEFAULT_POLICY = "FSDP402"
POLICY_BASE = "FSDP403"
EXEC_ORDER = "FSDP404"
OR_POLICY = "FSDP406"
DTENSOR = "FSDP601"
FULLY_SHARD = "FSDP602"
DEVICE_MESH = "FSDP603"
PRIVATE = "FSDP604"
SHARD_PACKAGES = "FSDP605"
COMPOSABLE = "FSDP607"
TENSOR_PARALLEL = "FSDP609"
AUTOCAST = "FSDP801"
SCALER = "FSDP802"
CUSTOM = "FSDP803"
GATHERS = "FSDP811"
OPERATIONS = "FSDP812"
RANKS = "FSDP813"
MULTIGPU = "FSDP814"
APPLY_CHECKPOINTING = "FSDP832"
CHECKPOINT_MODULE = "FSDP833"


class Move(NamedTuple):
    """Where something is now, under which name, and what its uses need.

    Since when the old name is deprecated or gone, and since when the new one exists, the API data knows; `had` are the
    first release with the old name and the first one without, where it does not.

    `new` is None for what is gone without a successor. A `whole` module takes along all that is in it and has no row of
    its own; where importing the old one gives the new one they are the `same`, whatever is done with it. `meanwhile` is
    a place that came before the new one and is still there. `trap` says what to do where the
    new name is not the old one under another name. With nothing else that is the reason why nothing is rewritten; with
    `only`, the attributes of the old name that the new one has with the same meaning, or `change`, the function of
    `moved_calls` that adapts a use, it is the reason for the other uses. `keywords` are parameters that were renamed.
    What warns `when_used` is no problem where it is only imported. Other parameters do not matter where only torch
    calls it, or another rule tells of them (`ignores_arguments`).
    """

    code: str
    entry: str
    old: str
    new: str | None
    whole: bool = False
    trap: str | None = None
    only: frozenset[str] | None = None
    keywords: tuple[tuple[str, str], ...] = ()
    change: str | None = None
    meanwhile: str | None = None
    when_used: bool = False
    had: tuple[str, str] | None = None
    same: bool = False
    ignores_arguments: bool = False

    @property
    def adapts(self) -> bool:
        """Whether the replacement differs in more than its place and its name."""
        return self.only is not None or self.change is not None or bool(self.keywords)

    @property
    def calls_change(self) -> bool:
        """Whether a call of the old name is not one of the new name."""
        return self.when_used and self.only is None and self.adapts


def rows(
    code: str,
    entry: str,
    old: str,
    new: str | None,
    names: str,
    trap: str | None = None,
    change: str | None = None,
    when_used: bool = False,
    ignores_arguments: bool = False,
) -> Iterator[Move]:
    """Rows for names of a module; `a>b` is called `b` in the new one."""
    for name in names.split():
        before, _, after = name.partition(">")
        target = None if new is None else f"{_full(new)}.{after or before}"
        path = f"{_full(old)}.{before}"
        move = Move(code, entry, path, target, trap=trap, change=change, when_used=when_used)
        yield move._replace(ignores_arguments=ignores_arguments)


def module_row(code: str, entry: str, old: str, new: str, meanwhile: str | None = None, same: bool = False) -> Move:
    """The row of a module with all that is in it."""
    between = None if meanwhile is None else _full(meanwhile)
    return Move(code, entry, _full(old), _full(new), whole=True, meanwhile=between, same=same)


def _full(module: str) -> str:
    return module if module == ROOT or module.startswith("torch.") else f"{ROOT}.{module}"
