"""The requirements on torch in the files of a project, collected by the readers beside this module."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace.project_files import FileFault, display, read_bytes
from fsdp_migrate.workspace.projects.requirement import LowerBound, Requirement, UnreadableError, pip_requirement

Written = TypeVar("Written")


class Mention(NamedTuple):
    """A requirement on torch, and its file."""

    path: str
    requirement: Requirement

    @property
    def bound(self) -> LowerBound | None:
        """The lower bound of the requirement."""
        return self.requirement.bound

    @property
    def line(self) -> int | None:
        """The line of the requirement in its file."""
        version = self.bound.version if self.bound else ""
        return line_of(self.path, re.escape(self.requirement.text), rf"torch.*{re.escape(str(version))}")


class Mentions:
    """The requirements on torch in one file.

    `package` says that the file describes a package: if it does not name torch, the code below does not require it.
    `extra` are requirements for some users only, besides `main`: extras and dependency groups.
    """

    def __init__(self, *, package: bool = False, warnings: Iterable[str] = ()) -> None:
        self.package = package
        self.main: list[Mention] = []
        self.extra: list[Mention] = []
        self.warnings = list(warnings)

    def add(
        self,
        path: str,
        written: Written,
        read: Callable[[Written], Requirement | None],
        *,
        main: bool = True,
    ) -> None:
        """Add a requirement of the file `path` if it is on torch; one that cannot be parsed becomes a warning."""
        try:
            requirement = read(written)
        except UnreadableError as error:
            self.warnings.append(f"{display(path)}: the requirement {str(error)!r} cannot be parsed, and is ignored")
            return
        if requirement is not None:
            (self.main if main else self.extra).append(Mention(path, requirement))

    def add_pip(self, path: str, texts: object, *, main: bool = True) -> None:
        """Add the requirements of a list as pip writes them; anything else in it is ignored."""
        for text in texts if isinstance(texts, list) else ():
            if isinstance(text, str):
                self.add(path, text, pip_requirement, main=main)

    @property
    def bounded(self) -> list[Mention]:
        """The requirements with a lower bound; none if the main ones allow any torch, since extras add to those."""
        main = [mention for mention in self.main if mention.bound]
        if self.main and not main:
            return []
        return main + [mention for mention in self.extra if mention.bound]


def line_of(path: str, *patterns: str) -> int | None:
    """The first line of a file, from 1, that matches the first of some patterns with a match; comments do not count."""
    try:
        lines = read_lines(path)
    except FileFault:
        return None
    fitting = (
        number
        for pattern in map(re.compile, patterns)
        for number, line in enumerate(lines, 1)
        if pattern.search(line) and not line.lstrip().startswith(("#", ";"))
    )
    return next(fitting, None)


def read_lines(path: str) -> list[str]:
    """The lines of a text file; UTF-16 is read if it is marked as such (PowerShell writes it).

    Raises:
        FileFault: the file cannot be read.
    """
    raw = read_bytes(path)
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = raw.decode("utf-16" if utf16 else "utf-8-sig", "replace")
    return [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
