"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from fsdp_migrate.facts.distributed import NEEDLES
from fsdp_migrate.rules.card import Rule
from fsdp_migrate.written_names import Vocabulary

_DISTRIBUTED = tuple(needle.encode() for needle in NEEDLES)


def needles(rules: Iterable[Rule]) -> frozenset[str]:
    """The identifiers that can trigger `rules`, without those that contain another one."""
    every = {needle for rule in rules for needle in rule.needles}
    return frozenset(n for n in every if not any(other != n and other in n for other in every))


@lru_cache(maxsize=8)
def _encoded(rules: tuple[Rule, ...], neighbours: bool) -> tuple[bytes, ...]:
    wanted = needles(rule for rule in rules if rule.neighbour is neighbours)
    return tuple(sorted(needle.encode() for needle in wanted))


@lru_cache(maxsize=8)
def _vocabulary(rules: tuple[Rule, ...]) -> Vocabulary:
    return Vocabulary(name for rule in rules if rule.names is not None for name in rule.names())


def is_candidate(raw: bytes, rules: tuple[Rule, ...]) -> bool:
    """Whether `raw` can hold a finding of `rules`. Works on any encoding that keeps ASCII as it is."""
    if any(needle in raw for needle in _encoded(rules, False)):
        return True
    near = any(needle in raw for needle in _DISTRIBUTED)
    return near and (any(needle in raw for needle in _encoded(rules, True)) or _vocabulary(rules).is_written(raw))
