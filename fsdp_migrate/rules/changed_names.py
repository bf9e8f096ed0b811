"""The names of torch that changed between the known releases: a file that writes none of them is of no general concern.

They are derived from the API data by `python -m tools.build_changed_names`, since deriving takes a second.
"""

from __future__ import annotations

from functools import cache

from fsdp_migrate.scan.names import Names, joined
from fsdp_migrate.torch_api import data as api

FILE = "changed_names.txt.gz"
# Classes whose members are told by objects that a file makes or annotates.
OBJECTS = ("FullyShardedDataParallel", "DeviceMesh", "TupleStrategy")
# Between the names that the newest release is at odds with and the others.
PARTS = "\n\n"


def changed_names() -> frozenset[str]:
    """Full names that some release lacks, deprecates or gives another signature, members as `Class.member`."""
    return frozenset(names_asked(False))


@cache
def names_asked(newest_only: bool) -> Names:
    """Those in question: all, or what the newest release lacks, deprecates or calls otherwise than an older one."""
    parts = api.unpacked(FILE).decode().split(PARTS)
    found = (dict(line.split(" ", 1) for line in part.splitlines()) for part in parts[: 1 if newest_only else None])
    return joined(map(Names, found))


@cache
def has_changed(path: str, newest_only: bool = False) -> bool:
    """Whether a name, wherever its class was imported from, is one of those in question."""
    names = names_asked(newest_only)
    return path in names or ".".join(path.split(".")[-2:]) in names


@cache
def changed_words(newest_only: bool = False) -> frozenset[str]:
    """The last parts of the names in question."""
    return names_asked(newest_only).words()
