"""Edits of a cell's text as edits of the notebook's JSON; everything else keeps its exact spelling."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from json.encoder import encode_basestring, encode_basestring_ascii

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.splicing import RewriteError
from fsdp_migrate.workspace.notebook.placed_json import Array, Literal

# How one character is written inside a literal.
_UNIT = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
_TOKEN = re.compile(r"\w+|.", re.DOTALL)
_LAST_NEWLINE = re.compile(r"(?:\r\n|\r|\n)\Z")
_BLANK_LINES = re.compile(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z")
_MOST_TOKENS = 3000


class CellEdit(NamedTuple):
    """New text for a range of characters."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Character:
    """One character as it is written, and whether an item of the list ends after it."""

    unit: str
    ends_line: bool


def spliced(json: str, edits: Iterable[CellEdit]) -> str:
    """The JSON of a notebook after edits of it."""
    pieces, done = [], 0
    for edit in sorted(edits):
        pieces += [json[done : edit.start], edit.text]
        done = edit.end
    return "".join([*pieces, json[done:]])


class CellSource:
    """The source of one cell, and the place and spelling of each of its characters in the JSON."""

    def __init__(self, json: str, value: Literal | Array) -> None:
        """`value` is the source in the text `json`."""
        self.json = json
        self.value = value
        self.literals: Sequence[Literal] = value if isinstance(value, Array) else [value]
        self.text = "".join(self.literals)

    def edited(self, changes: Iterable[CellEdit]) -> list[CellEdit]:
        """The edits of the JSON for `changes` of the cell's text, in which the end of the cell is a newline.

        Raises:
            RewriteError: two changes overlap.
        """
        joined = list(self._joined(changes))
        joined[-1:] = [self._within(change, joined[-2].end if joined[1:] else 0) for change in joined[-1:]]
        fine = [part for change in joined for part in _refined(self.text, change)]
        bounds = [0, *accumulate(len(literal) for literal in self.literals)]
        groups: list[tuple[int, int, list[CellEdit]]] = []
        for change in fine:
            first = _index(bounds, change.start)
            # A line whose newline goes is one with the next.
            joins = change.start < change.end and not change.text.endswith("\n")
            last = max(first, _index(bounds, change.end if joins else change.end - 1))
            if groups and first <= groups[-1][1] + 1:
                start, end, group = groups[-1]
                groups[-1] = (start, max(end, last), [*group, change])
            else:
                groups.append((first, last, [change]))
        return [self._replaced(first, last, bounds[first], group) for first, last, group in groups]

    def place(self, index: int) -> int:
        """The place of a character in the JSON; the end of the text is the end of the last literal."""
        bounds = [0, *accumulate(len(literal) for literal in self.literals)]
        if not self.literals:
            return self.value.start
        number = _index(bounds, index)
        literal = self.literals[number]
        return literal.start + 1 + sum(map(len, self._units(literal)[: index - bounds[number]]))

    def _joined(self, changes: Iterable[CellEdit]) -> Iterator[CellEdit]:
        """The changes in order, with adjacent ones joined."""
        current: CellEdit | None = None
        for change in sorted(changes, key=lambda one: one[:2]):
            if current is not None and change.start < current.end:
                raise RewriteError(f"two edits overlap at character {change.start} of a cell")
            if current is not None and change.start == current.end:
                current = CellEdit(current.start, change.end, current.text + change.text)
                continue
            if current is not None:
                yield current
            current = change
        if current is not None:
            yield current

    def _within(self, change: CellEdit, floor: int) -> CellEdit:
        """`change` without the newline that stands for the end of the cell; text before `floor` is taken."""
        if change.end <= len(self.text):
            return change
        newline = _LAST_NEWLINE.search(change.text)
        if newline is not None:
            return CellEdit(change.start, len(self.text), change.text[: newline.start()])
        above = _BLANK_LINES.search(self.text, floor, change.start)
        if change.text == "" and above is not None:
            return CellEdit(above.start(), len(self.text), "")
        return CellEdit(change.start, len(self.text), change.text)

    def _replaced(self, first: int, last: int, offset: int, changes: list[CellEdit]) -> CellEdit:
        """The literals from `first` to `last` with `changes`; the first of them starts at `offset` in the text."""
        lines = [""]
        for character in self._written(first, last, offset, changes):
            lines[-1] += character.unit
            if character.ends_line:
                lines.append("")
        if isinstance(self.value, Array) and lines[-1] == "":
            lines.pop()
        start, end = self.literals[first].start, self.literals[last].end
        if lines:
            return CellEdit(start, end, self._separator.join(f'"{line}"' for line in lines))
        if first > 0:
            return CellEdit(self.literals[first - 1].end, end, "")
        if last + 1 < len(self.literals):
            return CellEdit(start, self.literals[last + 1].start, "")
        return CellEdit(self.value.start + 1, self.value.end - 1, "")

    def _written(self, first: int, last: int, offset: int, changes: list[CellEdit]) -> Iterator[_Character]:
        old = [character for literal in self.literals[first : last + 1] for character in self._characters(literal)]
        done = 0
        for change in changes:
            yield from old[done : change.start - offset]
            for char in change.text:
                yield _Character(self._spelled(char), char == "\n" and isinstance(self.value, Array))
            done = change.end - offset
        yield from old[done:]

    def _characters(self, literal: Literal) -> list[_Character]:
        units = self._units(literal)
        # What is added behind the last line of a cell belongs to it.
        ends = isinstance(self.value, Array) and (literal is not self.literals[-1] or literal.endswith("\n"))
        return [_Character(unit, ends and number == len(units)) for number, unit in enumerate(units, 1)]

    def _units(self, literal: Literal) -> list[str]:
        units = _UNIT.findall(self.json, literal.start + 1, literal.end - 1)
        if len(units) != len(literal):
            raise RewriteError("a string of the notebook has an unknown escape")
        return units

    def _spelled(self, char: str) -> str:
        """A character as the cell spells it elsewhere, or in the style of its other characters."""
        return self._alphabet.get(char) or self._encode(char)[1:-1]

    @cached_property
    def _alphabet(self) -> dict[str, str]:
        """The spelling of each character of the cell, by its first occurrence."""
        alphabet: dict[str, str] = {}
        for literal in self.literals:
            for char, unit in zip(literal, self._units(literal)):
                alphabet.setdefault(char, unit)
        return alphabet

    @cached_property
    def _encode(self) -> Callable[[str], str]:
        """The encoder for characters that the cell does not contain: with escapes if it, or the file, has escapes."""
        beyond = [unit for char, unit in self._alphabet.items() if not char.isascii()]
        escapes = beyond[0].isascii() if beyond else self.json.isascii() and "\\u" in self.json
        return encode_basestring_ascii if escapes else encode_basestring

    @cached_property
    def _separator(self) -> str:
        """The text between two items of the list."""
        if len(self.literals) > 1:
            return self.json[self.literals[0].end : self.literals[1].start]
        before = self.json[self.value.start + 1 : self.literals[0].start]
        return f",{before}" if before else ", "


def _index(bounds: Sequence[int], position: int) -> int:
    """The item that contains a character, by the `bounds` of the items."""
    return max(0, min(bisect_right(bounds, position) - 1, len(bounds) - 2))


def _refined(text: str, change: CellEdit) -> list[CellEdit]:
    """The same change, split so that equal parts stay untouched."""
    old, new = _TOKEN.findall(text[change.start : change.end]), _TOKEN.findall(change.text)
    if len(old) + len(new) > _MOST_TOKENS:
        return [change]
    starts = [change.start, *(change.start + length for length in accumulate(map(len, old)))]
    parts = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [CellEdit(starts[i1], starts[i2], "".join(new[j1:j2])) for kind, i1, i2, j1, j2 in parts if kind != "equal"]
