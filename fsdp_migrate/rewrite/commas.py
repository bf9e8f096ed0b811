"""Lists between commas, in brackets (arguments, imported names): items come and go, layout and comments stay.

A comment belongs to the item that it follows on its line; a comment on a line of its own, to the next item.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.splicing import NEWLINE

_COMMENT = re.compile(r"#[^\r\n]*")
_INDENTED = re.compile(r"(?:\r\n|\r|\n)[ \t]*")


class Gap(NamedTuple):
    """What stands between an item and the next, or behind the last one: whitespace with comments, and the comma."""

    before: str = ""
    comma: bool = True
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}{',' if self.comma else ''}{self.after}"

    @property
    def breaks(self) -> bool:
        """Whether the next item starts on another line."""
        return _breaks(self.before) or _breaks(self.after)

    @property
    def commented(self) -> bool:
        """Whether it holds a comment."""
        return "#" in self.before or "#" in self.after

    @property
    def plain(self) -> Gap:
        """The same layout without comments and blank lines."""
        return Gap(_line_break(self.before) or self.before, self.comma, _line_break(self.after) or self.after)


@dataclass
class CommaList:
    """Items as text, with `lead` in front of the first and one gap behind each."""

    lead: str
    items: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def __str__(self) -> str:
        return self.lead + "".join(f"{item}{gap}" for item, gap in zip(self.items, self.gaps))

    def copy(self) -> CommaList:
        """Another list of the same items."""
        return CommaList(self.lead, self.items.copy(), self.gaps.copy())

    @property
    def one_per_line(self) -> bool:
        """Whether every item starts a line (the first may follow the bracket if there are others)."""
        between = self.gaps[:-1]
        return all(gap.breaks for gap in between) if between else _breaks(self.lead)

    @property
    def commented(self) -> bool:
        """Whether a comment stands between the items."""
        return "#" in self.lead or any(gap.commented for gap in self.gaps)

    @property
    def opening(self) -> str:
        """What stands on the line of the opening bracket, in front of the first item."""
        return _split(self.lead)[0]

    def take(self, index: int) -> tuple[list[str], list[str]]:
        """Take the item at `index` away with its comments: those on the lines above it, and those behind it.

        Those inside of it are the caller's.
        """
        self.items[index] = ""
        before = self.lead if index == 0 else self.gaps[index - 1].after
        trailing, lines = _split(before)
        above = _COMMENT.findall(lines)
        if above:
            before = trailing + _line_break(lines)
            if index == 0:
                self.lead = before
            else:
                self.gaps[index - 1] = self.gaps[index - 1]._replace(after=before)
        behind = self.forget(index)
        self.remove(index)
        return above, behind

    def forget(self, index: int) -> list[str]:
        """Take away the comments that the item at `index` has behind it on its line."""
        gap = self.gaps[index]
        trailing, lines = _split(gap.after if gap.comma else gap.before)
        behind = _COMMENT.findall((gap.before if gap.comma else "") + trailing)
        if behind:
            self.gaps[index] = Gap(gap.plain.before, True, lines) if gap.comma else Gap(lines, False)
        return behind

    def insert(self, index: int, item: str) -> None:
        """Put `item` at `index`, laid out like its neighbours."""
        if not self.items:
            self.gaps.append(Gap(comma=False))
        elif index == 0:
            self._open_front()
        elif index == len(self.items):
            self._open_end()
        else:
            self._open(index)
        self.items.insert(index, item)

    def remove(self, index: int) -> None:
        """Take the item at `index` away; a comment in it, or that followed it, gets a line of its own."""
        item, gap = self.items.pop(index), self.gaps.pop(index)
        gap = gap._replace(before=_inside(item) + gap.before)
        if not self.items:
            kept = [self.lead, gap.before, gap.after]
            comments = any("#" in space for space in kept)
            self.lead = "".join(kept) if comments else ""
        elif index == 0:
            self._close_front(gap)
        elif index == len(self.items):
            self._close_end(gap)
        else:
            self._close(index, gap)

    def _open_front(self) -> None:
        if not self.one_per_line:
            gap = self._same_line()
        elif _breaks(self.lead):
            trailing, rest = _split(self.lead)
            self.lead, gap = trailing + _line_break(rest), Gap(after=rest)
        else:
            gap = self.gaps[0].plain
        self.gaps.insert(0, gap)

    def _open(self, index: int) -> None:
        gap = self.gaps[index - 1]
        if not self.one_per_line:
            stays_first = gap.commented or not gap.breaks
            pair = (gap, self._same_line()) if stays_first else (self._same_line(), gap)
        elif _breaks(gap.before):
            pair = gap, gap.plain
        else:
            trailing, rest = _split(gap.after)
            pair = Gap(gap.before, after=trailing + _line_break(rest)), Gap(after=rest)
        self.gaps[index - 1 : index] = pair

    def _open_end(self) -> None:
        end = self.gaps[-1]
        trailing, rest = _split(end.after if end.comma else end.before)
        layout = self._line_gap(rest) if self.one_per_line or trailing else self._same_line()
        before = end.before if end.comma else ""
        if _breaks(layout.before):
            gap = Gap(before + trailing + layout.before, True, layout.after)
        else:
            gap = Gap(before + layout.before, True, trailing + layout.after)
        self.gaps[-1] = gap
        self.gaps.append(Gap("", True, rest) if end.comma else Gap(rest, False))

    def _same_line(self) -> Gap:
        """A gap as between items that share a line."""
        return next((gap for gap in self.gaps[:-1] if not gap.breaks), Gap(after=" "))

    def _line_gap(self, closing: str) -> Gap:
        """A gap that starts a new line for an item; `closing` is what leads to the bracket."""
        between = [gap.plain for gap in self.gaps[:-1] if gap.breaks]
        if between:
            return between[-1]
        return Gap(after=_line_break(self.lead) or _line_break(closing))

    def _close_front(self, gap: Gap) -> None:
        trailing, rest = _split(gap.after)
        orphans = _COMMENT.findall(gap.before + trailing)
        if not orphans and "#" not in rest:
            return
        line = _line_break(self.lead) or _line_break(rest) or _line_break(gap.before)
        self.lead = _comments(self.lead) + _own_lines(orphans, line) + (rest if "#" in rest else line)

    def _close(self, index: int, gap: Gap) -> None:
        left = self.gaps[index - 1]
        trailing, rest = _split(gap.after)
        orphans = _COMMENT.findall(gap.before + trailing)
        line = _line_break(left.after) or _line_break(rest) or _line_break(gap.before) or _line_break(left.before)
        if _breaks(rest):
            after = _comments(left.after) + _own_lines(orphans, line) + rest
        elif orphans:
            after = _comments(left.after) + _own_lines(orphans, line) + line
        else:
            after = left.after
        self.gaps[index - 1] = Gap(left.before, True, after)

    def _close_end(self, gap: Gap) -> None:
        left = self.gaps[-1]
        trailing, rest = _split(gap.after if gap.comma else gap.before)
        orphans = _COMMENT.findall((gap.before if gap.comma else "") + trailing)
        if not left.commented and not orphans:
            self.gaps[-1] = Gap("", True, rest) if gap.comma else Gap(rest, False)
            return
        line = _line_break(left.after) or _line_break(left.before) or _line_break(self.lead) or _line_break(rest)
        before = _comments(left.before) and left.before
        after = _comments(left.after) + _own_lines(orphans, line) + (rest if _breaks(rest) else line)
        self.gaps[-1] = Gap(before, True, after) if gap.comma else Gap(before + after, False)


def _inside(item: str) -> str:
    """The comments in an item, a line for each, indented as the item's second one."""
    line = _INDENTED.search(item) if "#" in item else None
    if line is None:
        return ""
    tokens = tokenize.generate_tokens(io.StringIO(f"({item})", newline="").readline)
    return "".join(f"  {token.string}{line.group()}" for token in tokens if token.type == tokenize.COMMENT)


def _breaks(space: str) -> bool:
    return NEWLINE.search(space) is not None


def _split(space: str) -> tuple[str, str]:
    """The comment on the first line of `space`, with the blanks before it, and the rest from the line's end on."""
    newline = NEWLINE.search(space)
    if newline is None:
        return "", space
    first = space[: newline.start()]
    return first if "#" in first else "", space[newline.start() :]


def _line_break(space: str) -> str:
    """The last newline in `space` with the indentation behind it."""
    newlines = list(NEWLINE.finditer(space))
    return space[newlines[-1].start() :] if newlines else ""


def _comments(space: str) -> str:
    """`space` up to the end of its last comment, nothing without one."""
    found = list(_COMMENT.finditer(space))
    return space[: found[-1].end()] if found else ""


def _own_lines(comments: Iterable[str], line: str) -> str:
    return "".join(line + comment for comment in comments)
