"""Many full names, of which a run asks for few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

CALLED = "("


class Names:
    """Full names by what stands in front of their last dot. What an owner has is taken apart when it is asked for."""

    def __init__(self, members: Mapping[str, str]) -> None:
        """`members` of each owner are separated by blanks.

        One with `(` counts only where it is called, and where a word of those behind that is written, if any is.
        """
        self.members = members
        self.marked = cache(self._marked)
        self.of = cache(lambda owner: frozenset(self.marked(owner)))

    def _marked(self, owner: str) -> dict[str, tuple[bytes, ...] | None]:
        """What an owner has, each with the words of calls, None if it counts wherever it is written."""
        found: dict[str, tuple[bytes, ...] | None] = {}
        for one in self.members.get(owner, "").split():
            name, mark, words = one.partition(CALLED)
            if not mark or name not in found or found[name] is not None:
                found[name] = tuple(word.encode() for word in words.split(",")) if mark else None
        return found

    def __contains__(self, name: str) -> bool:
        """Whether a full name is one of them."""
        owner, _, last = name.rpartition(".")
        return last in self.of(owner)

    def __iter__(self) -> Iterator[str]:
        """All, one by one."""
        return (f"{owner}.{name}".lstrip(".") for owner in self.members for name in self.of(owner))

    def words(self) -> frozenset[str]:
        """The last parts of all."""
        return frozenset(one.partition(CALLED)[0] for text in self.members.values() for one in text.split())


def listed(names: Iterable[str]) -> Names:
    """Names that are given one by one."""
    members: dict[str, str] = {}
    for owner, _, last in (name.rpartition(".") for name in names):
        members[owner] = f"{members.get(owner, '')} {last}"
    return Names(members)


def joined(several: Iterable[Names]) -> Names:
    """The names of all."""
    members: dict[str, str] = {}
    for owner, more in (pair for names in several for pair in names.members.items()):
        members[owner] = f"{members[owner]} {more}" if owner in members else more
    return Names(members)
