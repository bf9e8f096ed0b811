"""The byte test that most files end at: does a file hold an identifier that some rule can be triggered by?

It works on any encoding that keeps ASCII as it is.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE, UNUSED_SUPPRESSION
from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.index import ENTRIES

if TYPE_CHECKING:
    from fsdp_migrate.rules.card import FileScope
    from fsdp_migrate.rules.entry import Entry
    from fsdp_migrate.scan.names import Names
    from fsdp_migrate.scan.needles import Haystack, Needles
    from fsdp_migrate.scan.written_names import Vocabulary

_SUPPRESSION = pattern(rb"noqa\s*:[^\r\n]*fsdp\d|fsdp-migrate:\s*ignore")
# One of these is in an import or behind a dot in every file that `facts.distributed.uses_distributed` holds for; one of
# all but the first where FSDP is used.
_ANY = b"distributed"
_DISTRIBUTED = (_ANY, b"fsdp", b"FSDP", b"FullyShardedDataParallel")
# In which scopes a word counts by itself, and in which what the file or its project uses has to go with it.
_ALONE = ("fsdp", "everywhere")
_NEAR = ("near", "models")
# Nothing that has one of these in front is the name of something that modules pass on.
_NO_NAME = (b".", b"*", b"'", b'"')
_FORMS = ".*"  # what may be in front of words
# These rules look only where others do, or where a comment is about them.
_AFTER_OTHERS = (UNPARSABLE, UNUSED_SUPPRESSION)
# One of these is in every suppression of this tool's rules; both are among the words above.
_SUPPRESSING = (b"fsdp", b"FSDP")
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

    def all_in(self, raw: bytes) -> frozenset[bytes]:
        """All that are in a short text."""
        return frozenset(word for word in self._words if word in raw)

    @cached_property
    def _found_by(self) -> tuple[list[re.Pattern[bytes]], list[bytes]]:
        from fsdp_migrate.scan.words import found_by

        # One that contains another one tells nothing. Finding these takes longer than searching a few texts for all.
        return found_by(sorted(w for w in self._words if not any(other != w and other in w for other in self._words)))


class Look(NamedTuple):
    """What the bytes of a file tell: that it `passes`, or `waits` for what its project gives it; or neither.

    One that is `near` may use torch.distributed or FSDP. One that is `old` passes only by names that the newest release
    has as older ones had them.
    """

    passes: bool
    waits: bool
    near: bool
    old: bool = False


class Screen:
    """What the files that some rules can find something in have in common."""

    def __init__(self, entries: tuple[Entry, ...], *, newest_only: bool = False, hints: bool = True) -> None:
        """With `newest_only` changed names count only if the newest release is at odds with them."""
        self._newest_only = newest_only
        self._hints = hints
        # A file that does not parse is told where a rule that is selected looks; that takes no other words.
        wide = any(entry.scope == "everywhere" and entry.code not in _AFTER_OTHERS for entry in entries)
        every = (*entries, *(ENTRIES if wide else ()))
        self._own = [entry for entry in every if not entry.is_neighbour]
        self._neighbours = [entry for entry in entries if entry.is_neighbour]
        self._of_own, self._of_neighbours = self._first_words(self._own), self._first_words(self._neighbours)
        self._names = {name for entry in entries for name in entry.names or ()}
        self._changed = any(entry.names is None for entry in entries)
        self._unused = _finds_unused(entries)
        near = any(entry.is_neighbour or entry.scope in _NEAR for entry in every)
        self.asks_near = near or self._changed or bool(self._names)  # Whether it makes a difference to some rule.

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The full names that can trigger the rules."""
        from fsdp_migrate.rules.changed_names import OBJECTS
        from fsdp_migrate.scan.written_names import Vocabulary

        return Vocabulary(self.names, OBJECTS)

    @cached_property
    def _anywhere(self) -> Vocabulary | None:
        """The names beside torch.distributed that count in all files, because their rule was asked for."""
        own = (name for entry in self._own for name in entry.names or ())
        names = [name for name in own if not name.startswith("torch.distributed.")]
        if not names:
            return None
        from fsdp_migrate.scan.names import listed
        from fsdp_migrate.scan.written_names import Vocabulary

        return Vocabulary(listed(names))

    @cached_property
    def _newer(self) -> Vocabulary | None:
        """Those that count where only the newest release is in question, None where these are all."""
        if self._newest_only or not self._changed:
            return None
        from fsdp_migrate.scan.written_names import Vocabulary

        return Vocabulary(self._asked(newest_only=True), self.vocabulary.objects)

    @cached_property
    def names(self) -> Names:
        """The same as they are written in torch."""
        return self._asked(newest_only=self._newest_only)

    def _asked(self, *, newest_only: bool) -> Names:
        from fsdp_migrate.scan.names import joined, listed

        own = listed(self._names)
        if not self._changed:
            return own
        from fsdp_migrate.rules.changed_names import names_asked

        return joined((own, names_asked(newest_only)))

    def speaks(self, text: str) -> bool:
        """Whether a text has a word of a rule, members of objects and built-in names aside."""
        return self._words.any_in(text.encode())

    def words_in(self, text: str) -> frozenset[bytes]:
        """The words of rules that a text has."""
        return self._words.all_in(text.encode())

    @cached_property
    def _words(self) -> Words:
        from fsdp_migrate.scan.needles import parts

        needles = {one for each in self._needles((*self._own, *self._neighbours)) for one in parts(each)}
        needles |= {name.encode() for entry in self._neighbours for name in entry.names or ()}
        return Words({one for one in needles if not one.startswith(_NO_NAME) and one.decode() not in vars(builtins)})

    @cached_property
    def _scopes(self) -> Haystack[FileScope]:
        from fsdp_migrate.scan.needles import Haystack

        every = (*self._own, *self._neighbours)
        return Haystack((needles, entry.scope) for entry in every for needles in entry.needles(self._hints))

    def _needles(self, entries: Iterable[Entry]) -> Iterator[Needles]:
        return (needles for entry in entries for needles in entry.needles(self._hints))

    def _first_words(self, entries: Iterable[Entry]) -> Words:
        """A word for each way in which rules can be triggered."""
        return Words({_first(needles).lstrip(_FORMS).encode() for needles in self._needles(entries)})

    def look(self, raw: bytes, imports: bytes | None = None, *, loosely: bool = False, near: bool = False) -> Look:
        """Look at a file; `loosely` if what it imports cannot be told from its lines, `near` if its project says so.

        `imports` are these lines where they are known.
        """
        words = [word for word in _DISTRIBUTED if word in raw]
        used = set(words) if loosely else _used(raw, words, imports)
        models, near = near or any(word != _ANY for word in used), near or bool(used)
        met: set[FileScope] = set()
        if self._of_own.any_in(raw) or (near and self._of_neighbours.any_in(raw)):
            from fsdp_migrate.scan.needles import Written

            met = self._scopes.found(Written(raw))
        if not near:
            met -= {"distributed", "launched"}
        # A string may name what nothing imports, as for `mock.patch`: with the dot in it it is near.
        passes = (
            not met.isdisjoint(_ALONE)
            or (near and not met <= {"models"})
            or (models and "models" in met)
            or (self._unused and any(word in words for word in _SUPPRESSING) and _has_suppression(raw))
        )
        written = self.vocabulary if near else self._anywhere
        named = not passes and written is not None and written.is_written(raw)
        old = named and near and self._newer is not None and not self._newer.is_written(raw)
        return Look(passes or named, bool(met) and not passes, near, old)

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
    return bool(_used(raw, [word for word in _DISTRIBUTED if word in raw]))


def _used(raw: bytes, words: Sequence[bytes], imports: bytes | None = None) -> set[bytes]:
    """Which words stand in an import or are attributes; licences and comments have them too."""
    if not words:
        return set()
    from fsdp_migrate.scan.needles import behind_dots

    if imports is None:
        from fsdp_migrate.scan.imports import import_lines

        imports = import_lines(raw)
    return {word for word in words if word in imports or next(behind_dots(raw, word), None) is not None}


def _first(needles: Needles) -> str:
    """The one of needles that is looked for first."""
    return needles if isinstance(needles, str) else needles[0]
