"""The torch range of one folder: the lowest release that its project files allow."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from fsdp_migrate.patterns import pattern
from fsdp_migrate.torch_api import DEFAULT_RANGE, RangeError, Statement, TorchRange
from fsdp_migrate.workspace.project_files import FileFault, display
from fsdp_migrate.workspace.settings import Project

if TYPE_CHECKING:
    from fsdp_migrate.workspace.projects.mentions import Mention, Mentions

DEFAULT = TorchRange.default()
# The same, where a project supports even older releases.
_FROM_DEFAULT = TorchRange(DEFAULT_RANGE)

_LISTS = pattern(r"requirements.*\.(?:txt|in)")
_ENVIRONMENTS = pattern(r"environment.*\.ya?ml")
_LISTS_FOLDER = "requirements"

# The modules beside this one that read a project file; one is loaded where there is such a file.
_READERS = {
    "pyproject.toml": "pyproject",
    "setup.cfg": "setup_cfg",
    "setup.py": "setup_script",
    "Pipfile": "pipfile",
}


NO_PROJECT = Project("(no project)", DEFAULT, "default; no project file in this or a parent folder")


def inferred(folder: str, names: Collection[str]) -> Project | None:
    """The project that a folder's files describe, None if none of them names a package or torch.

    Every requirement may lower the bound, and none limits it from above: a project with a pin is about to leave it.
    """
    files = [_mentions(path, folder, reader) for path, reader in _readers(folder, names)]
    if not any(found.package or found.main or found.extra or found.warnings for _, found in files):
        return None
    warnings = [warning for _, found in files for warning in found.warnings]
    bounded = [mention for _, found in files for mention in found.bounded]
    if bounded:
        lowest = min(bounded, key=lambda mention: (mention.bound, mention.path))
        return _bounded(folder, lowest, warnings)
    unbounded = next((mention for _, found in files for mention in (*found.main, *found.extra)), None)
    if unbounded is not None:
        source = f"default; {unbounded.requirement.text!r} in {display(unbounded.path)} gives no lower bound"
    else:
        speaking = next(path for path, found in files if found.package or found.warnings)
        source = f"default; {display(speaking)} does not require torch"
    return Project(display(folder), DEFAULT, source, warnings=tuple(warnings))


def _bounded(folder: str, lowest: Mention, warnings: list[str]) -> Project:
    root, where, bound = display(folder), display(lowest.path), str(lowest.bound)
    try:
        torch = TorchRange.parse(bound)
    except RangeError:
        warnings.append(f"{where}: no known torch release is in {bound!r}; torch{DEFAULT} is assumed")
        return Project(root, DEFAULT, f"default; {where} requires torch{bound}", warnings=tuple(warnings))
    stated = Statement(where, lowest.line, f"torch{bound}")
    if torch.oldest >= DEFAULT.oldest:
        return Project(root, torch.stated_at(stated), f"{where} requires torch{bound}", warnings=tuple(warnings))
    note = f"{where} supports torch{bound}; pass --torch '{bound}' to check those releases, too"
    return Project(root, _FROM_DEFAULT.stated_at(stated), f"default; {note}", note, tuple(warnings))


def _mentions(path: str, root: str, reader: str) -> tuple[str, Mentions]:
    from fsdp_migrate.workspace.projects.mentions import Mentions

    found: Mentions
    try:
        found = import_module(f"{__package__}.{reader}").read(path, root)
        return path, found
    except FileFault as fault:
        warning = f"{display(path)}: cannot be read: {fault}; its requirements are ignored"
        return path, Mentions(warnings=[warning])


def _readers(folder: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """The project files among `names`, each with its reader, the most informative first."""
    for name, reader in _READERS.items():
        if name in names:
            yield os.path.join(folder, name), reader
    for name in sorted(names):
        if _LISTS.fullmatch(name):
            yield os.path.join(folder, name), "requirement_lists"
        elif _ENVIRONMENTS.fullmatch(name):
            yield os.path.join(folder, name), "conda_environment"
    if _LISTS_FOLDER in names:
        lists = os.path.join(folder, _LISTS_FOLDER)
        for name in sorted(listing(lists)):
            if name.endswith((".txt", ".in")):
                yield os.path.join(lists, name), "requirement_lists"


def listing(folder: str) -> frozenset[str]:
    """The names in a folder, none if it cannot be read or is not a folder."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
