"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?

It works on any encoding that keeps ASCII as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE, UNUSED_SUPPRESSION
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.index import ENTRIES

if TYPE_CHECKING:
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.scan.names import Names
    from fsdp_migrate.scan.written_names import Vocabulary

_SUPPRESSION = re.compile(rb"noqa\s*:[^\r\n]*fsdp\d|fsdp-migrate:\s*ignore")
# One of these is in an import or behind a dot in every file that `facts.distributed.uses_distributed` holds for.
_DISTRIBUTED = (b"distributed", b"fsdp", b"FSDP", b"FullyShardedDataParallel")
# One of these is in every suppression of this tool's rules; both are among the words above.
_SUPPRESSING = (b"fsdp", b"FSDP")
_WIDEST_GAP = 200
# In so many texts the words are looked for before there are patterns for them, which take as long to make.
_FEW = 32


class Words:
    """Texts, each of which lets the text that it is written in pass."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(words)
        self._texts = 0

    def any_in(self, raw: bytes) -> bool:
        """Whether one of them is in the text, as a part of a longer word too."""
        self._texts += 1
        if self._texts <= _FEW:
            return any(word in raw for word in self._words)
        patterns, others = self._found_by
        return any(pattern.search(raw) for pattern in patterns) or any(word in raw for word in others)

    @cached_property
    def _found_by(self) -> tuple[list[re.Pattern[bytes]], list[bytes]]:
        from fsdp_migrate.scan.words import found_by

        # One that contains another one tells nothing. Finding these takes longer than searching a few texts for all.
        return found_by(sorted(w for w in self._words if not any(other != w and other in w for other in self._words)))


class Look(NamedTuple):
    """What the bytes of a file tell: that it `passes`, or `waits` for what its project gives it; or neither.

    One that is `near` may use torch.distributed or FSDP. One that is `named` passes only by a name that changed.
    """

    passes: bool
    waits: bool
    near: bool
    named: bool = False


class Screen:
    """What the files that some rules can find something in have in common."""

    def __init__(self, entries: tuple[Entry, ...], *, newest_only: bool = False) -> None:
        """With `newest_only` changed names count only if the newest release is at odds with them."""
        self._newest_only = newest_only
        # A file that does not parse is told where a rule that is selected looks; that takes no other words.
        wide = any(entry.scope == "everywhere" and entry.code != UNPARSABLE for entry in entries)
        everywhere = ENTRIES if wide else ()
        own = [entry for entry in (*entries, *everywhere) if not entry.is_neighbour]
        self._own = _words(own)
        self._alone = _words((entry for entry in own if entry.scope != "near"), _DISTRIBUTED)
        self._neighbours = _words(entry for entry in entries if entry.is_neighbour)
        self._names = {name for entry in entries for name in entry.names or ()}
        self._changed = any(entry.names is None for entry in entries)
        self._unused = _finds_unused(entries)
        near = any(entry.is_neighbour or entry.scope == "near" for entry in (*entries, *everywhere))
        self.asks_near = near or self._changed or bool(self._names)  # Whether it makes a difference to some rule.

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The full names that can trigger the rules."""
        from fsdp_migrate.scan.written_names import Vocabulary

        return Vocabulary(self.names)

    @cached_property
    def names(self) -> Names:
        """The same as they are written in torch."""
        from fsdp_migrate.scan.names import joined, listed

        own = listed(self._names)
        if not self._changed:
            return own
        from fsdp_migrate.rules.changed_names import names_asked

        return joined((own, names_asked(self._newest_only)))

    def speaks(self, text: str) -> bool:
        """Whether a text has a word of a rule."""
        return self._own.any_in(text.encode()) or self._neighbours.any_in(text.encode())

    def look(self, raw: bytes, imports: bytes | None = None, *, loosely: bool = False, near: bool = False) -> Look:
        """Look at a file; `loosely` if what it imports cannot be told from its lines, `near` if its project says so.

        `imports` are these lines where they are known.
        """
        words = [word for word in _DISTRIBUTED if word in raw]
        near = near or (bool(words) if loosely else _is_near(raw, words, imports))
        own = self._own.any_in(raw)
        # A string may name what nothing imports, as for `mock.patch`: with the dot in it it is near.
        passes = (
            (near and (own or self._neighbours.any_in(raw)))
            or (own and self._alone.any_in(raw))
            or (self._unused and any(word in words for word in _SUPPRESSING) and _has_suppression(raw))
        )
        named = near and not passes and self.vocabulary.is_written(raw)
        return Look(passes or named, own and not passes, near, named)

    def passes(self, raw: bytes) -> bool:
        """Whether a file can hold a finding by itself."""
        return self.look(raw).passes


def may_be_unused(raw: bytes, entries: tuple[Entry, ...]) -> bool:
    """Whether `raw` can hold a suppression of this tool's rules, if the rules find those that are not used."""
    return _finds_unused(entries) and _has_suppression(raw)


def _has_suppression(raw: bytes) -> bool:
    if b"fsdp-migrate:" not in raw and b"FSDP" not in raw:
        return False
    lowered = raw.lower()  # a pattern that ignores case is tried at every byte
    # It is slow where it has nothing to find, and these words are rare.
    return (b"noqa" in lowered or b"fsdp-migrate:" in lowered) and _SUPPRESSION.search(lowered) is not None


def _finds_unused(entries: tuple[Entry, ...]) -> bool:
    return any(entry.code == UNUSED_SUPPRESSION for entry in entries)


def may_use_distributed(raw: bytes) -> bool:
    """Whether a file may import torch.distributed, or name it, or import something that is called after FSDP."""
    return _is_near(raw, [word for word in _DISTRIBUTED if word in raw])


def _is_near(raw: bytes, words: Sequence[bytes], imports: bytes | None = None) -> bool:
    if words and imports is None:
        from fsdp_migrate.scan.imports import import_lines

        imports = import_lines(raw)
    return any(_is_used(raw, word, imports or b"") for word in words)


def _is_used(raw: bytes, word: bytes, imports: bytes) -> bool:
    """Whether a word stands in an import or is an attribute; licences and comments have it too."""
    if word in imports:
        return True
    start = raw.find(word)
    while start >= 0:
        if raw[max(0, start - _WIDEST_GAP) : start].rstrip(b" \t\f\r\n\\").endswith(b"."):
            return True
        start = raw.find(word, start + len(word))
    return False


def _words(entries: Iterable[Entry], without: Collection[bytes] = ()) -> Words:
    """The identifiers that can trigger rules."""
    return Words({word.encode() for entry in entries for word in entry.words}.difference(without))
