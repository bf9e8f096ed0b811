"""The patterns of a configuration: `include`, `exclude` and `per-file-ignores`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import SUFFIXES, YAML_SUFFIXES
from fsdp_migrate.workspace import gitignore
from fsdp_migrate.workspace.gitignore import GitIgnore, Pattern

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

# What a folder is searched for.
_FOUND = (*SUFFIXES, *YAML_SUFFIXES)


class Choice:
    """The files that one configuration includes and excludes, by absolute path; a folder's ends in a separator."""

    def __init__(self, include: GitIgnore | None, exclude: GitIgnore | None, *, scripts: bool = False) -> None:
        """With `scripts` those are taken, whatever `include` says."""
        self.include = include
        self.exclude = exclude
        self.scripts = scripts

    def leaves_out(self, path: str) -> bool:
        """Whether `exclude` matches the file or folder itself."""
        exclude = self.exclude
        return exclude is not None and path.startswith(exclude.base) and gitignore.ignored([exclude], path)

    def takes(self, path: str) -> bool:
        """Whether a file is one to check, unless it is excluded."""
        if self.include is None:
            return path.endswith(_FOUND)
        inside = path[len(self.include.base) :].replace(os.sep, "/")
        verdicts = (_verdict(pattern, inside) for pattern in self.include.patterns)
        return next((verdict for verdict in verdicts if verdict is not None), False)


def spec(folder: str, lines: Sequence[str]) -> GitIgnore:
    """Patterns relative to `folder`."""
    return GitIgnore(os.path.join(folder, ""), lines)


def _verdict(pattern: Pattern, path: str) -> bool | None:
    """What one pattern of `include` says about a file: a pattern for a folder includes no others in it."""
    reach = pattern.reach(path)
    if reach is None:
        return None
    if (reach < len(path) or pattern.any_name) and not path.endswith(_FOUND):
        return None
    return pattern.include


class Exemption(NamedTuple):
    """One line of `per-file-ignores`: files, and prefixes of the rules that are off in them.

    The files are those below `base` that the pattern matches, or that are in a folder that it matches; if `inverted`,
    all others.
    """

    base: str
    spec: GitIgnoreSpec
    inverted: bool
    codes: tuple[str, ...]

    def holds_for(self, path: str) -> bool:
        """Whether the rules are off in a file, given by its absolute path."""
        fits = path.startswith(self.base) and self.spec.match_file(path[len(self.base) :])
        return fits is not self.inverted


def exemptions(folder: str, ignores: Iterable[tuple[str, tuple[str, ...]]]) -> list[Exemption]:
    """The lines of `per-file-ignores` in a configuration file in `folder`."""
    from pathspec import GitIgnoreSpec

    base = os.path.join(folder, "")
    return [
        Exemption(base, GitIgnoreSpec.from_lines([pattern.removeprefix("!")]), pattern.startswith("!"), codes)
        for pattern, codes in ignores
    ]
