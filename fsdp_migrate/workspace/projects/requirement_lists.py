"""Lists of requirements for pip: `requirements.txt` and similar files, with the lists that they include."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from fsdp_migrate.workspace.project_files import FileFault, display
from fsdp_migrate.workspace.projects.mentions import Mentions, read_lines
from fsdp_migrate.workspace.projects.requirement import pip_requirement

_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(.+)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_OPTIONS = re.compile(r"\s--?[A-Za-z]")


def read(path: str, root: str) -> Mentions:
    """The requirements on torch in a list, and in the files under `root` that it includes.

    Raises:
        FileFault: it cannot be read.
    """
    mentions = Mentions()
    _read_into(mentions, path, root, set(), main=True)
    return mentions


def include(mentions: Mentions, path: str, root: str, *, main: bool) -> None:
    """Add the requirements of a list that another file names; a warning if it cannot be read."""
    _include(mentions, path, root, set(), main=main)


def _read_into(mentions: Mentions, path: str, root: str, seen: set[str], *, main: bool) -> None:
    seen.add(path)
    for line in _requirements(read_lines(path)):
        included = _INCLUDE.fullmatch(line)
        if included:
            _include(mentions, os.path.join(os.path.dirname(path), included[1].strip()), root, seen, main=main)
        else:
            mentions.add(path, _OPTIONS.split(line)[0], pip_requirement, main=main)


def _include(mentions: Mentions, path: str, root: str, seen: set[str], *, main: bool) -> None:
    path = os.path.normpath(path)
    if path in seen or not path.startswith(os.path.join(root, "")):
        return
    try:
        _read_into(mentions, path, root, seen, main=main)
    except FileFault as fault:
        mentions.warnings.append(f"{display(path)}: cannot be read: {fault}; its requirements are ignored")


def _requirements(lines: list[str]) -> Iterator[str]:
    """The logical lines, without comments."""
    pending = ""
    for line in lines:
        pending += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield _COMMENT.sub("", pending).strip()
            pending = ""
    yield _COMMENT.sub("", pending).strip()
