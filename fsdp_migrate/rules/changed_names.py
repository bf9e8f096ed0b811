"""The names of torch that changed between the known releases: a file that writes none of them is of no general concern.

They are derived from the API data by `python -m tools.build_changed_names`, since deriving takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from fsdp_migrate.torch_api import PUBLISHED
from fsdp_migrate.torch_api import data as api
from fsdp_migrate.torch_api.unread import WARNINGS

FILE = "changed_names.txt.gz"


@cache
def changed_names() -> frozenset[str]:
    """Full names that some release lacks, deprecates or gives another signature, members as `Class.member`."""
    return frozenset(_read(api.unpacked(FILE).decode()))


@cache
def has_changed(path: str) -> bool:
    """Whether a name, wherever its class was imported from, is one of these."""
    return path in changed_names() or ".".join(path.split(".")[-2:]) in changed_names()


@cache
def changed_words() -> frozenset[str]:
    """The last parts of these names."""
    return frozenset(name.rpartition(".")[2] for name in changed_names())


def _read(text: str) -> Iterator[str]:
    for line in text.splitlines():
        owner, *names = line.split()
        yield from (f"{owner}.{name}" for name in names)


def derived_names() -> frozenset[str]:
    """The same, read off the API data."""
    listed = [name for name in api.names("torch") if _is_public_to_python(name)]
    aliases = (
        old + name[len(new) :]
        for old, new in api.SAME_MODULES.items()
        for name in listed
        if name.startswith(f"{new}.") and name.count(".") == new.count(".") + 1
    )
    names = (name for name in (*listed, *aliases) if _changed(name))
    return frozenset((*map(_screened, names), *WARNINGS))


def _is_public_to_python(name: str) -> bool:
    return "." in name and not name.rpartition(".")[2].startswith("__")


def _changed(name: str) -> bool:
    present = {api.exists(name, release) for release in PUBLISHED}
    if {True, False} <= present or any(api.deprecation(name, release) for release in PUBLISHED):
        return True
    signatures = {api.signature_text(name, release) for release in PUBLISHED if api.exists(name, release)}
    return len(signatures) > 1


def _screened(name: str) -> str:
    owner, _, member = name.rpartition(".")
    is_class = any(api.kind(owner, release) == "class" for release in PUBLISHED)
    return f"{owner.rpartition('.')[2]}.{member}" if is_class else name
