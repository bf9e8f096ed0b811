"""The names of torch that changed between the known releases: a file that writes none of them is of no general concern.

They are derived from the API data by `python -m tools.build_changed_names`, since deriving takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from fsdp_migrate.torch_api import data as api

FILE = "changed_names.txt.gz"
# Between the names that the newest release is at odds with and the others.
PARTS = "\n\n"


@cache
def changed_names() -> frozenset[str]:
    """Full names that some release lacks, deprecates or gives another signature, members as `Class.member`."""
    return frozenset(_read(api.unpacked(FILE).decode()))


@cache
def failing_names() -> frozenset[str]:
    """Those of them that the newest release lacks or deprecates, or that it calls otherwise than an older one."""
    return frozenset(_read(api.unpacked(FILE).decode().partition(PARTS)[0]))


def names_asked(newest_only: bool) -> frozenset[str]:
    """The names in question: all, or for the newest release only."""
    return failing_names() if newest_only else changed_names()


@cache
def has_changed(path: str, newest_only: bool = False) -> bool:
    """Whether a name, wherever its class was imported from, is one of those in question."""
    names = names_asked(newest_only)
    return path in names or ".".join(path.split(".")[-2:]) in names


@cache
def changed_words(newest_only: bool = False) -> frozenset[str]:
    """The last parts of the names in question."""
    return frozenset(name.rpartition(".")[2] for name in names_asked(newest_only))


def _read(text: str) -> Iterator[str]:
    for line in text.splitlines():
        owner, *names = line.split() or ("",)
        yield from (f"{owner}.{name}" for name in names)
