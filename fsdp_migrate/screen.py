"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from fsdp_migrate.rules.card import Rule


def needles(rules: Iterable[Rule]) -> frozenset[str]:
    """The identifiers that can trigger `rules`, without those that contain another one."""
    every = {needle for rule in rules for needle in rule.needles}
    return frozenset(n for n in every if not any(other != n and other in n for other in every))


@lru_cache(maxsize=8)
def _encoded(rules: tuple[Rule, ...]) -> tuple[bytes, ...]:
    return tuple(sorted(needle.encode() for needle in needles(rules)))


def is_candidate(raw: bytes, rules: tuple[Rule, ...]) -> bool:
    """Whether `raw` can hold a finding of `rules`. Works on any encoding that keeps ASCII as it is."""
    return any(needle in raw for needle in _encoded(rules))
