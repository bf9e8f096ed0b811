"""Patterns that find many words in a text much faster than looking for one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

# Rare enough in Python code for a start: a search for a pattern that starts with one byte jumps from one to the next.
_STARTS = re.compile(rb"[_A-Z]")


def found_by(words: Sequence[bytes]) -> tuple[list[re.Pattern[bytes]], list[bytes]]:
    """Patterns that find the words, several with one where it is possible, and the words that none can be made for."""
    patterns, left = [], list(words)
    while starts := {start for word in left for start in _STARTS.findall(word)}:
        start = max(sorted(starts), key=lambda byte: sum(byte in word for word in left))
        patterns.append(re.compile(_pattern(start, [word for word in left if start in word])))
        left = [word for word in left if start not in word]
    return patterns, left


def _pattern(start: bytes, words: Sequence[bytes]) -> bytes:
    """What matches from the first `start` in one of the words to its end."""
    return start + _alternatives([(word.partition(start)[2], word) for word in words])


def _alternatives(ends: Sequence[tuple[bytes, bytes]]) -> bytes:
    """What matches an end of a word with the rest of its word in front of it; what ends share is tried once."""
    found = [b"(?<=" + re.escape(word) + b")" for end, word in ends if not end]
    for first in dict.fromkeys(end[:1] for end, _ in ends if end):
        same = [(end, word) for end, word in ends if end[:1] == first]
        length = _shared(min(same)[0], max(same)[0])
        rest = _alternatives([(end[length:], word) for end, word in same])
        found.append(re.escape(same[0][0][:length]) + rest)
    return b"(?:" + b"|".join(found) + b")"


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes the beginnings of two words have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
