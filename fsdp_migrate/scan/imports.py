"""The lines of a text that import something: a fortieth of it, and all that it takes to know what it imports."""

from __future__ import annotations

import re

COMMENT = re.compile(rb"#[^\r\n]*")
# No file that parses has a parenthesis that stays open; one with many of them would be read again for each.
_MOST_UNCLOSED = 2000
_IMPORT = b"import"
_OPENS = re.compile(rb"import(?:[ \t\f]|\\\n)*\(")


def unix(raw: bytes) -> bytes:
    """The text with one kind of newline."""
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw


def import_lines(raw: bytes) -> bytes:
    """Every line of a text that has an import, whole and with those that it goes on over."""
    raw = unix(raw)
    found = []
    place, end = raw.find(_IMPORT), 0
    while place >= 0:
        start = raw.rfind(b"\n", 0, place) + 1
        while start > 1 and raw[start - 2] == b"\\"[0]:
            start = raw.rfind(b"\n", 0, start - 1) + 1
        end, start = _end(raw, place), max(start, end)
        found.append(raw[start:end])
        place = raw.find(_IMPORT, end)
    return b"\n".join(found)


def _end(raw: bytes, place: int) -> int:
    """Where the line ends that an import stands on, behind its parentheses."""
    behind = place
    while True:
        end = raw.find(b"\n", behind)
        if end < 0:
            return len(raw)
        opens = _OPENS.search(raw, place, end)
        closes = 0 if opens is None else closing(raw, opens.end())
        if closes >= end:
            place = behind = closes
        elif raw[end - 1] == b"\\"[0]:
            behind = end + 1
        else:
            return end


def closing(raw: bytes, start: int) -> int:
    """Where the parenthesis closes that is open at `start` in an import: at the first one that is in no comment."""
    end = start
    while (end := raw.find(b")", end)) >= 0:
        line_start = max(raw.rfind(b"\n", start, end), raw.rfind(b"\r", start, end), start)
        if raw.find(b"#", line_start, end) < 0:
            return end
        end += 1
    return min(len(raw), start + _MOST_UNCLOSED)
