"""What a text has to hold before a rule can find something in it.

A needle is a word, the end of words (`*_state_dict`), an attribute with its dot (`.module`), or another piece of text.
Of several that have to be there together the first is the rarest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cache, cached_property
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Needles = str | tuple[str, ...]

_END = b"*"
# What stands between words becomes a blank.
_BLANKS = bytes(n if n > 127 or chr(n).isalnum() or chr(n) == "_" else 32 for n in range(256))
_WIDEST_GAP = 200


class Written:
    """A text, with each of its words once."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @cached_property
    def words(self) -> frozenset[bytes]:
        """The words that are written, in names, strings and comments."""
        return frozenset(self.raw.translate(_BLANKS).split())

    def has(self, needles: Needles) -> bool:
        """Whether all of these needles are in it."""
        return all(self._has(one) for one in parts(needles))

    def _has(self, needle: bytes) -> bool:
        word = needle.removeprefix(b".")
        if not _is_word(word):
            return needle.removeprefix(_END) in self.raw
        return word in self.words and (word == needle or self._reads(word))

    def _reads(self, name: bytes) -> bool:
        return any(not self.raw[end : end + 1].translate(_BLANKS).strip() for end in behind_dots(self.raw, name))


class Haystack(Generic[Owner]):
    """Whose needles are in a text, of many that have some."""

    def __init__(self, needles: Iterable[tuple[Needles, Owner]]) -> None:
        self._by_word: dict[bytes, list[tuple[Needles, Owner]]] = {}
        self._others: list[tuple[Needles, Owner]] = []
        for each, owner in needles:
            first = parts(each)[0].removeprefix(b".")
            held = self._by_word.setdefault(first, []) if _is_word(first) else self._others
            held.append((each, owner))
        self._words = frozenset(self._by_word)

    def found(self, text: Written) -> set[Owner]:
        """Those who have all of some needles in a text."""
        near = (pair for word in self._words & text.words for pair in self._by_word[word])
        return {owner for pairs in (near, self._others) for needles, owner in pairs if text.has(needles)}


@cache
def _is_word(needle: bytes) -> bool:
    return b" " not in needle.translate(_BLANKS)


@cache
def parts(needles: Needles) -> tuple[bytes, ...]:
    """The needles that have to be there together."""
    return tuple(one.encode() for one in ((needles,) if isinstance(needles, str) else needles))


def behind_dots(raw: bytes, word: bytes) -> Iterator[int]:
    """Where a word ends that stands behind a dot, or the start of a longer one."""
    start = raw.find(word)
    while start >= 0:
        end = start + len(word)
        if raw[max(0, start - _WIDEST_GAP) : start].rstrip(b" \t\f\r\n\\").endswith(b"."):
            yield end
        start = raw.find(word, end)
