"""What a run of `prove` was about, so that others can tell later whether that is still the code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.prove import changes


@dataclass(frozen=True)
class Rewrite:
    """How `rewrite` made the new version."""

    target: str | None
    unsafe_fixes: bool


@dataclass(frozen=True)
class Subject:
    """The program that both versions ran, and the files in which these differ.

    `commit` is the one that was checked out, None where there is none. `files` has the digest of each version by path
    in the project, None where a version lacks the file.
    """

    program: tuple[str, ...]
    commit: str | None
    rewrite: Rewrite | None
    files: Mapping[str, tuple[str | None, str | None]]


def differing(before: Path, after: Path) -> dict[str, tuple[str | None, str | None]]:
    """The digests of the files that differ between two copies."""
    found = {path: (digest(before / path), digest(after / path)) for path in changes.paths(before, after)}
    return {path: sides for path, sides in found.items() if sides[0] != sides[1]}


def digest(path: Path) -> str | None:
    """The SHA-256 of a file's bytes, None if there is no file."""
    if not path.is_file():
        return None
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            found.update(block)
    return found.hexdigest()
