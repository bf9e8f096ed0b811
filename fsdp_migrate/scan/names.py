"""Many full names, of which a run asks for few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache


class Names:
    """Full names by what stands in front of their last dot. What an owner has is taken apart when it is asked for."""

    def __init__(self, members: Mapping[str, str]) -> None:
        """`members` of each owner are separated by blanks."""
        self.members = members
        self.of = cache(lambda owner: frozenset(members.get(owner, "").split()))

    def __contains__(self, name: str) -> bool:
        """Whether a full name is one of them."""
        owner, _, last = name.rpartition(".")
        return last in self.of(owner)

    def __iter__(self) -> Iterator[str]:
        """All, one by one."""
        return (f"{owner}.{name}".lstrip(".") for owner in self.members for name in self.of(owner))


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
