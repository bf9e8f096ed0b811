"""The files that git would ignore: `.gitignore` files are read and applied as git does."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from functools import cached_property

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace import disk

NAME = ".gitignore"

# How pathspec's patterns name the slash that ends a folder's name.
_FOLDER_GROUP = "ps_d"


class Pattern(NamedTuple):
    """One line of a `.gitignore`.

    A pattern without a slash (`by_name`) is about names, any other about the path from its folder. `folder/**`
    (`contents_only`) is about the contents of the folder. `any_name` says that its last part consists of stars.
    """

    by_name: bool
    contents_only: bool
    any_name: bool
    regex: re.Pattern[str]
    include: bool

    def verdict(self, path: str) -> bool | None:
        """Whether this line ignores `path` (True), includes it again (False) or does not match it (None).

        pathspec also lets a pattern for a folder match everything below it. git does not: the folder was decided
        before, and each path in it is judged on its own.
        """
        subject = path[path.rstrip("/").rfind("/") + 1 :] if self.by_name else path
        if self.contents_only:
            subject = subject.rstrip("/")
        reach = self.reach(subject)
        return None if reach is None or reach < len(subject) else self.include

    def reach(self, path: str) -> int | None:
        """How much of `path` this line matches: less than all of it if it names a folder above; None if nothing."""
        match = self.regex.search(path)
        if match is None:
            return None
        of_folder = _FOLDER_GROUP in self.regex.groupindex and match.start(_FOLDER_GROUP) >= 0
        return match.end(_FOLDER_GROUP) if of_folder else len(path)


class GitIgnore:
    """One `.gitignore`: its folder (with a trailing separator) and its lines."""

    def __init__(self, base: str, lines: Sequence[str]) -> None:
        self.base = base
        self._lines = lines

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """What the lines say, the last one first."""
        return patterns(self._lines)

    @cached_property
    def _names(self) -> tuple[frozenset[str], re.Pattern[str]]:
        """The names that lines may be about: those that are written, and a pattern for the others."""
        from fnmatch import translate  # not needed where no folder is searched

        names = {_last_name(line) for line in self._lines if line.strip() and not line.startswith("#")}
        others = {name for name in names if "*" in name or "?" in name}
        return frozenset(names - others), re.compile("|".join(map(translate, sorted(others))) or "(?!)")

    def verdict(self, real: str) -> bool | None:
        """The verdict of the last line that matches `real`."""
        path = real[len(self.base) :].replace(os.sep, "/")
        name = path.rstrip("/").rpartition("/")[2]
        written, others = self._names
        # Most projects hold nothing that fits, and loading what reads patterns takes longer than searching them.
        if name not in written and not others.match(name):
            return None
        verdicts = (pattern.verdict(path) for pattern in self.patterns)
        return next((verdict for verdict in verdicts if verdict is not None), None)


def _last_name(line: str) -> str:
    """A shell pattern for the names of the files and folders that a line may match themselves."""
    name = line.rstrip().removeprefix("!").rstrip("/").rpartition("/")[2]
    before, special, _ = name.replace("\\", "[").partition("[")
    return (f"{before}?*" if special else name) or "*"


def load(folder: str) -> GitIgnore:
    """The `.gitignore` of `folder`, a real path.

    Raises:
        OSError: it cannot be read.
    """
    text = disk.contents(os.path.join(folder, NAME)).decode("utf-8-sig", "surrogateescape")
    return GitIgnore(os.path.join(folder, ""), [line.removesuffix("\r") for line in text.split("\n")])


def ignored(ignores: Sequence[GitIgnore], real: str) -> bool:
    """Whether git would ignore `real` (a folder ends in a separator). The innermost file with a verdict decides."""
    for ignore in reversed(ignores):
        if real != ignore.base and (verdict := ignore.verdict(real)) is not None:
            return verdict
    return False


def parents_in_repository(real: str) -> list[str]:
    """The folders above `real`, from the root of its repository inwards."""
    parents: list[str] = []
    here = real
    while not os.path.lexists(os.path.join(here, ".git")):
        parent = os.path.dirname(here)
        if parent == here:
            return []
        parents.insert(0, parent)
        here = parent
    return parents


def patterns(lines: Sequence[str]) -> tuple[Pattern, ...]:
    """The patterns in `lines`, the last one first, without lines that git does not understand."""
    from pathspec import GitIgnoreSpec

    found = []
    for line in reversed(lines):
        # git passes over a pattern that makes no sense to it; so do we.
        with contextlib.suppress(ValueError):
            for pattern in GitIgnoreSpec.from_lines([line]).patterns:
                if pattern.include is not None and pattern.regex is not None:
                    body = line.strip()
                    by_name, contents_only = "/" not in body.rstrip("/"), body.endswith("/**")
                    any_name = not body.rstrip("/").rpartition("/")[2].strip("*")
                    found.append(Pattern(by_name, contents_only, any_name, pattern.regex, pattern.include))
    return tuple(found)
