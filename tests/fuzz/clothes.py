"""The bytes that one text can have on a disk: encodings, byte order marks, line ends, indentation."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from hypothesis import strategies as st

NEWLINES = ("\n", "\r\n", "\r")


@dataclass(frozen=True)
class Clothes:
    """How a text is written down."""

    encoding: str = "utf-8"
    mark: bool = False
    newlines: tuple[str, ...] = ("\n",)
    indent: str = "    "
    final_newline: bool = True
    words: str = ""

    def on(self, text: str) -> bytes:
        """The bytes of `text` (with line feeds); the encoding is declared where Python would not guess it."""
        body = re.sub(r"^(?: {4})+", lambda match: self.indent * (len(match.group()) // 4), text, flags=re.MULTILINE)
        body = f"# {self.words}\n{body}" if self.words else body
        body = body if self.encoding == "utf-8" else f"# -*- coding: {self.encoding} -*-\n{body}"
        body = body if self.final_newline else body.rstrip("\n")
        pieces = body.split("\n")
        ends = [self.newlines[number % len(self.newlines)] for number in range(len(pieces) - 1)]
        whole = "".join(piece + end for piece, end in zip(pieces, [*ends, ""], strict=True))
        return (codecs.BOM_UTF8 if self.mark else b"") + whole.encode(self.encoding, "replace")


def clothes() -> st.SearchStrategy[Clothes]:
    """Mostly plain, sometimes anything."""
    odd = st.builds(
        Clothes,
        encoding=st.sampled_from(
            ["utf-8", "latin-1", "cp1252", "iso-8859-15", "koi8-r", "shift_jis", "gb18030", "euc-jp", "big5", "utf-7"]
        ),
        mark=st.booleans(),
        newlines=st.lists(st.sampled_from(NEWLINES), min_size=1, max_size=3).map(tuple),
        indent=st.sampled_from(["    ", "  ", "\t", " ", "        ", "   "]),
        final_newline=st.booleans(),
        words=st.sampled_from(["", "caf\u00e9", "\u4f60\u597d", "\U0001f600 \u2028 \x85 \x0c \x1c", "\u00a0"]),
    )
    return st.one_of(st.just(Clothes()), odd)
