"""Unified diffs for `git apply` and `patch -p1`, in the bytes of the files."""

from __future__ import annotations

import difflib
import os
import re

from fsdp_migrate.report.places import below

# What git writes between quotes.
_SPECIAL = re.compile(rb'[\x00-\x1f\x7f"\\]')


def patch_name(path: str) -> str:
    """The name of a file in a patch: its path from the root of the repository.

    That is the repository of the current folder, or the file's own if it lies elsewhere, or the current folder if there
    is none. For a link it is the name of its target, which is the file that a rewrite writes.
    """
    # Paths are shown as UTF-8, whatever the locale takes them for.
    real, here = os.path.realpath(os.fsdecode(path.encode("utf-8", "surrogateescape"))), os.getcwd()
    own = (root for root in (_repository(here), _repository(os.path.dirname(real)), here) if root is not None)
    inside = next((name for root in own if (name := below(real, root)) is not None), None)
    return inside or real.replace(os.sep, "/").lstrip("/")


def _repository(folder: str) -> str | None:
    """The root of the repository that contains a folder."""
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def unified(name: str, before: bytes, after: bytes, *, created: bool = False) -> bytes:
    """The diff of the file that the patch calls `name`; empty if nothing changed."""
    old, new = (_written(f"{side}/{name}".encode("utf-8", "surrogateescape")) for side in "ab")
    old = b"/dev/null" if created else old
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old, new)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _written(name: bytes) -> bytes:
    """A name as git writes it in diffs: in quotes if it needs them, with a tab at its end if it contains spaces."""
    if _SPECIAL.search(name):
        return b'"' + _SPECIAL.sub(lambda found: b"\\%03o" % ord(found[0]), name) + b'"'
    return name + b"\t" if b" " in name else name


def _lines(raw: bytes) -> list[bytes]:
    """Lines as `patch` reads them: only LF ends a line."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]] + ([last] if (last := raw.rpartition(b"\n")[2]) else [])
