"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from fsdp_migrate.rules.card import Rule


@lru_cache(maxsize=8)
def _pattern(needles: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(sorted(re.escape(needle.encode()) for needle in needles)))


def needles(rules: Iterable[Rule]) -> frozenset[str]:
    """The identifiers that can trigger `rules`, without those that contain another one."""
    every = {needle for rule in rules for needle in rule.needles}
    return frozenset(n for n in every if not any(other != n and other in n for other in every))


def is_candidate(raw: bytes, rules: tuple[Rule, ...]) -> bool:
    """Whether `raw` can hold a finding of `rules`. Works on any encoding that keeps ASCII as it is."""
    wanted = needles(rules)
    return bool(wanted) and _pattern(wanted).search(raw) is not None
