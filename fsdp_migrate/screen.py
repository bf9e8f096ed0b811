"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNUSED_SUPPRESSION
from fsdp_migrate.rules.index import ENTRIES

if TYPE_CHECKING:
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.written_names import Vocabulary

# One of these is written in every file that `facts.distributed.uses_distributed` holds for.
NEAR = ("distributed", "fsdp", "FSDP", "FullyShardedDataParallel")
_NEAR = tuple(needle.encode() for needle in NEAR)
_SUPPRESSION = rb"noqa\s*:[^\r\n]*FSDP\d|fsdp-migrate:\s*ignore"


def needles(entries: Iterable[Entry]) -> frozenset[str]:
    """The identifiers that can trigger rules, without those that contain another one."""
    every = {needle for entry in entries for needle in entry.needles}
    return frozenset(n for n in every if not any(other != n and other in n for other in every))


@lru_cache(maxsize=8)
def _encoded(entries: tuple[Entry, ...], neighbours: bool) -> tuple[bytes, ...]:
    if not neighbours and any(entry.everywhere for entry in entries):
        entries += ENTRIES
    wanted = needles(entry for entry in entries if entry.neighbour is neighbours)
    return tuple(sorted(needle.encode() for needle in wanted))


@lru_cache(maxsize=8)
def _vocabulary(entries: tuple[Entry, ...]) -> Vocabulary:
    from fsdp_migrate.written_names import Vocabulary

    names = {name for entry in entries for name in entry.names}
    if any(entry.changed for entry in entries):
        from fsdp_migrate.rules.changed_names import changed_names

        names |= changed_names()
    return Vocabulary(names)


def is_candidate(raw: bytes, entries: tuple[Entry, ...]) -> bool:
    """Whether `raw` can hold a finding of the rules. Works on any encoding that keeps ASCII as it is."""
    if any(needle in raw for needle in _encoded(entries, False)):
        return True
    near = any(needle in raw for needle in _NEAR)
    if near and (any(needle in raw for needle in _encoded(entries, True)) or _vocabulary(entries).is_written(raw)):
        return True
    return may_be_unused(raw, entries)


def may_be_unused(raw: bytes, entries: tuple[Entry, ...]) -> bool:
    """Whether `raw` can hold a suppression of this tool's rules, if the rules find those that are not used."""
    # The pattern is slow where it has nothing to find, and these words are rare.
    if b"fsdp-migrate:" not in raw and b"FSDP" not in raw:
        return False
    return _finds_unused(entries) and re.search(_SUPPRESSION, raw, re.IGNORECASE) is not None


@lru_cache(maxsize=8)
def _finds_unused(entries: tuple[Entry, ...]) -> bool:
    return any(entry.code == UNUSED_SUPPRESSION for entry in entries)
