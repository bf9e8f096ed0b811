"""What a star import takes of a module that says so in an `__all__`."""

from __future__ import annotations

import re

_GAP = rb"(?:[\s\\]|#[^\n]*\n)*"
_TEXT = rb"""(?:"\w+"|'\w+')"""
# A list or tuple of plain strings, and nothing more on its last line.
_PLAIN = re.compile(
    rb"__all__[ \t]*(?::[^=\n]*)?=[ \t]*[\[(]"
    + (_GAP + rb"(?:" + _TEXT + _GAP + rb"," + _GAP + rb")*" + rb"(?:" + _TEXT + _GAP + rb")?")
    + rb"[\])][ \t]*(?:#[^\n]*)?(?:\n|\Z)"
)
_NAME = re.compile(rb"""["'](\w+)["']""")
_QUOTES = (b'"""', b"'''")


def exported(raw: bytes) -> frozenset[str] | None:
    """The names in the `__all__` of a module; None when it has none, or one that is not plainly a list of names."""
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n")
    place = raw.find(b"__all__")
    if place < 0 or raw.find(b"__all__", place + 1) >= 0 or b"\r" in raw:
        return None
    if place and (raw[place - 1 : place] != b"\n" or raw[place - 2 : place - 1] == b"\\"):
        return None  # on some condition
    match = _PLAIN.match(raw, place)
    if match is None or any(_is_inside(raw, place, quotes) for quotes in _QUOTES):
        return None
    return frozenset(name.decode() for name in _NAME.findall(match[0]))


def _is_inside(raw: bytes, place: int, quotes: bytes) -> bool:
    """Whether a place may be in a string of several lines."""
    start, end = (0, place) if place < len(raw) // 2 else (place, len(raw))
    return raw.count(quotes, start, end) % 2 == 1
