"""Unified diffs that `git apply` and `patch -p1` take, in the bytes of the files themselves."""

from __future__ import annotations

import difflib
import os
import re

from fsdp_migrate.report.places import below

# What git writes between quotes.
_SPECIAL = re.compile(rb'[\x00-\x1f\x7f"\\]')


def patch_name(path: str) -> str:
    """What a patch calls the file at `path`: `git apply` wants it relative to the root of the repository.

    That is the repository of the current folder where the file lies in it, else its own. Without one it is the current
    folder. Of a link the target is meant, as that is what a rewrite writes.
    """
    # Paths are shown as UTF-8, whatever the locale takes them for.
    real, here = os.path.realpath(os.fsdecode(path.encode("utf-8", "surrogateescape"))), os.getcwd()
    own = (root for root in (_repository(here), _repository(os.path.dirname(real)), here) if root is not None)
    inside = next((name for root in own if (name := below(real, root)) is not None), None)
    return inside or real.replace(os.sep, "/").lstrip("/")


def _repository(folder: str) -> str | None:
    """The root of the repository that a folder lies in."""
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def unified(name: str, before: bytes, after: bytes, *, created: bool = False) -> bytes:
    """The diff of the file that patches call `name`, empty when nothing changed."""
    old, new = (_written(f"{side}/{name}".encode("utf-8", "surrogateescape")) for side in "ab")
    old = b"/dev/null" if created else old
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old, new)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _written(name: bytes) -> bytes:
    """A name as git's own diffs have it: between quotes if need be, and a tab ends one that has spaces in it."""
    if _SPECIAL.search(name):
        return b'"' + _SPECIAL.sub(lambda found: b"\\%03o" % ord(found[0]), name) + b'"'
    return name + b"\t" if b" " in name else name


def _lines(raw: bytes) -> list[bytes]:
    """Lines as patch sees them: LF ends one, nothing else does."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]] + ([last] if (last := raw.rpartition(b"\n")[2]) else [])
