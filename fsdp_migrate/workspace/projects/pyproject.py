"""pyproject.toml: `[project]`, dependency groups (PEP 735), Poetry, and the lists that setuptools reads from files."""

from __future__ import annotations

import os
from typing import Any

from fsdp_migrate.workspace.projects import requirement_lists
from fsdp_migrate.workspace.projects.mentions import Mentions
from fsdp_migrate.workspace.projects.requirement import poetry_requirement
from fsdp_migrate.workspace.toml import load, table


def read(path: str, root: str) -> Mentions:
    """The requirements on torch in a pyproject.toml; a file for tools alone describes no package.

    Raises:
        FileFault: it cannot be read.
    """
    document = load(path)
    poetry = table(document, "tool", "poetry")
    mentions = Mentions(package="project" in document or bool(poetry))
    mentions.add_pip(path, table(document, "project").get("dependencies"))
    # `{include-group = ...}` needs no following: the group that it names is read as well.
    for lists in (table(document, "project", "optional-dependencies"), table(document, "dependency-groups")):
        for texts in lists.values():
            mentions.add_pip(path, texts, main=False)
    _add_dynamic(mentions, table(document, "tool", "setuptools", "dynamic"), root)
    _add_poetry(mentions, path, poetry)
    return mentions


def _add_dynamic(mentions: Mentions, dynamic: dict[str, Any], root: str) -> None:
    optional = table(dynamic, "optional-dependencies")
    for main, entry in [(True, table(dynamic, "dependencies")), *((False, table(optional, name)) for name in optional)]:
        names = entry.get("file")
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str):
                requirement_lists.include(mentions, os.path.join(root, name), root, main=main)


def _add_poetry(mentions: Mentions, path: str, poetry: dict[str, Any]) -> None:
    groups = table(poetry, "group")
    others = [table(poetry, "dev-dependencies"), *(table(groups, name, "dependencies") for name in groups)]
    for main, dependencies in [(True, table(poetry, "dependencies")), *((False, other) for other in others)]:
        for name, constraints in dependencies.items():
            if name.lower() == "torch":
                for constraint in constraints if isinstance(constraints, list) else [constraints]:
                    optional = isinstance(constraint, dict) and constraint.get("optional") is True
                    mentions.add(path, constraint, poetry_requirement, main=main and not optional)
