"""What a row of the tables of moved names says, and how rows for several names of a module are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ROOT = "torch.distributed"

DTENSOR = "FSDP601"
FULLY_SHARD = "FSDP602"
DEVICE_MESH = "FSDP603"
PRIVATE = "FSDP604"
SHARD_PACKAGES = "FSDP605"
COMPOSABLE = "FSDP607"
TENSOR_PARALLEL = "FSDP609"


class Move(NamedTuple):
    """Where something is now.

    `new` is None for what is gone without a successor. A `whole` module takes along all that is in it and has no row of
    its own. `trap` says what to do where the new name is not the old one under another name; then nothing is
    rewritten. `only` are the attributes of the old name that the new one has with the same meaning; a `statement` is a
    function whose result changed, which does not matter where it is called as a statement. `placement` marks the class
    whose argument changed with its name. `meanwhile` is a place that came before the new one and is still there.
    """

    code: str
    entry: str
    old: str
    new: str | None
    whole: bool = False
    trap: str | None = None
    only: frozenset[str] | None = None
    statement: bool = False
    placement: bool = False
    meanwhile: str | None = None


def rows(
    code: str, entry: str, old: str, new: str | None, names: str, trap: str | None = None, statement: bool = False
) -> Iterator[Move]:
    """Rows for names of a module; `a>b` is called `b` in the new one."""
    for name in names.split():
        before, _, after = name.partition(">")
        target = None if new is None else f"{ROOT}.{new}.{after or before}"
        yield Move(code, entry, f"{ROOT}.{old}.{before}", target, trap=trap, statement=statement)


def module_row(code: str, entry: str, old: str, new: str) -> Move:
    """The row of a module with all that is in it."""
    return Move(code, entry, f"{ROOT}.{old}", f"{ROOT}.{new}", whole=True)
