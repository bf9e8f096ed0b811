"""Looks a written name up in the table of names that moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from packaging.version import Version

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Traced
from fsdp_migrate.targets.modernise.moved.moves import MOVES
from fsdp_migrate.targets.modernise.moved.rows import FLAT_PARAMETER, FULLY_SHARD, Move
from fsdp_migrate.torch_api.data import exists, history, is_module, target


class Moved(NamedTuple):
    """A written name that a row speaks of: `old` is the part of it that the row changes, into `new`."""

    move: Move
    old: str
    new: str | None
    meanwhile: str | None = None

    @property
    def renames(self) -> bool:
        """Whether the thing has another name, not only another module."""
        return self.new is not None and self.old.rpartition(".")[2] != self.new.rpartition(".")[2]


_BY_OLD = {move.old: move for move in MOVES}
# Rules that let a new place fall back on the old one; elsewhere older releases are left to FSDP600.
_BOTH_WAYS = (FLAT_PARAMETER, FULLY_SHARD)
_BY_NEW: dict[str, list[Move]] = {}
for _move in MOVES:
    # What warns where it is used is there on every release.
    if _move.new is not None and _move.code in _BOTH_WAYS and not (_move.adapts or _move.when_used):
        _BY_NEW.setdefault(_move.new, []).append(_move)


@cache
def row_of(path: str) -> Move | None:
    """The longest row that fits a written name, None if there is none."""
    while path and path not in _BY_OLD:
        path = path.rpartition(".")[0]
    return _BY_OLD.get(path)


def moved(path: str, newest: Version) -> Moved | None:
    """What the table says of a written name, None when nothing; the longest row that fits counts.

    A name of a whole module follows it if the `newest` release has it in the new place, or in one in between.
    """
    move = row_of(path)
    if move is None:
        return None
    prefix = move.old
    if prefix == path or not move.whole or move.new is None:
        return Moved(move, prefix, move.new, move.meanwhile)
    inside = _named_by_modules(prefix, path[len(prefix) + 1 :].split("."))
    new, *between = (f"{place}{inside}" for place in (move.new, move.meanwhile) if place is not None)
    if not any(exists(place, newest) for place in (new, *between)):
        return None
    return Moved(move, f"{prefix}{inside}", new, between[0] if between else None)


@cache
def is_new_place(path: str, code: str) -> bool:
    """Whether the rule `code` knows where a name was before it came to `path`."""
    return any(move.code == code for move, _ in older_places(path))


def older_places(path: str) -> Iterator[tuple[Move, str]]:
    """Where a name was before it came to `path`, with the rows that say so; it is the same thing there."""
    module, _, name = path.rpartition(".")
    for move in _BY_NEW.get(module, ()):
        if move.whole and f"{move.old}.{name}" not in _BY_OLD:
            yield move, f"{move.old}.{name}"
    for move in _BY_NEW.get(path, ()):
        yield move, move.old


def _named_by_modules(module: str, names: Sequence[str]) -> str:
    """The part of `names`, with dots, up to the first that is no module: its attributes do not move by themselves."""
    inside = ""
    for name in names:
        inside += f".{name}"
        if not is_module(f"{module}{inside}"):
            break
    return inside


@cache
def old_names(code: str) -> frozenset[str]:
    """The old names of the rule `code`."""
    return frozenset(move.old for move in MOVES if move.code == code)


def all_names(code: str) -> frozenset[str]:
    """What a file has to write to concern the rule `code`: an old name, or a new one that older releases lack.

    Public modules alone are no such names, they are written everywhere.
    """
    moves = (move for together in _BY_NEW.values() for move in together if move.code == code)
    return old_names(code).union(move.new for move in moves if move.new and (not move.whole or "._" in move.new))


def traced(code: str) -> Iterator[Traced]:
    """The old names of the rule `code` that no release has as another name of the new one: a call tells which it is."""
    for move in MOVES:
        if move.code == code and (states := history(move.old)):
            own = all(state.kind in ("function", "class") and state.target is None for state in states.values())
            if own and not any(move.new and target(move.new, release) == move.old for release in states):
                yield Traced(move.old)


def last_parts(code: str) -> tuple[str, ...]:
    """The old names of the rule `code` without what stands in front of them."""
    return tuple(sorted({name.rpartition(".")[2] for name in old_names(code)}))
