"""Where the comments of a text are, without reading each of its tokens."""

from __future__ import annotations

import re
import sys

from fsdp_migrate.patterns import pattern

# Strings with fields that hold tokens of their own: the same quotes again, and comments.
_NESTING = sys.version_info >= (3, 12)

_LONG = rb"QQQ[^\\Q]*(?:(?:\\[\s\S]|Q(?!QQ))[^\\Q]*)*QQQ"
_SHORT = rb"Q[^\\Q\r\n]*(?:\\(?:\r\n|[\s\S])[^\\Q\r\n]*)*Q"
_STRINGS = b"|".join(kind.replace(b"Q", quote) for kind in (_LONG, _SHORT) for quote in (b"'", b'"'))
_PIECE = pattern(rb"""(?P<comment>#[^\r\n]*)|(?P<string>%s)|['"]""" % _STRINGS)
_PREFIX = pattern(rb"(?:[ftFT][rR]?|[rR][ftFT])\Z")
_INSIDE = rb"""(?:[^{}'"#]|'[^'"{}#\\\r\n]*'|"[^'"{}#\\\r\n]*")*"""
_PLAIN = pattern(rb"(?:[^{}]|{{|}}|{(?!{)%s(?:{%s}%s)*})*" % (_INSIDE, _INSIDE, _INSIDE))


def comment_places(data: bytes) -> list[tuple[int, int]] | None:
    """Start and end of every comment in a text that parses; None where only its tokens tell."""
    if b"#" not in data:
        return []
    found = []
    for piece in _PIECE.finditer(data):
        if piece.lastgroup == "comment":
            found.append(piece.span())
        elif piece.lastgroup is None or (_NESTING and not _is_plain(data, piece)):
            return None
    return found


def _is_plain(data: bytes, string: re.Match[bytes]) -> bool:
    """Whether a string ends where it seems to: it has no fields, or nothing in them that looks like its end."""
    start, end = string.span()
    if data.find(b"{", start, end) < 0 or not _PREFIX.search(data, max(0, start - 2), start):
        return True
    return _PLAIN.fullmatch(data, start, end) is not None
