"""Unified diffs that `git apply` and `patch -p1` take, in the bytes of the files themselves."""

from __future__ import annotations

import difflib
import os


def unified(path: str, before: bytes, after: bytes) -> bytes:
    """The diff of one file, empty when nothing changed."""
    name = path.replace(os.sep, "/").lstrip("/").encode("utf-8", "surrogateescape")
    # A tab ends a name that has spaces in it, as in git's own diffs.
    end = b"\t" if b" " in name else b""
    lines = difflib.diff_bytes(
        difflib.unified_diff, _lines(before), _lines(after), b"a/" + name + end, b"b/" + name + end
    )
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _lines(raw: bytes) -> list[bytes]:
    """Lines as patch sees them: LF ends one, nothing else does."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]] + ([last] if (last := raw.rpartition(b"\n")[2]) else [])
