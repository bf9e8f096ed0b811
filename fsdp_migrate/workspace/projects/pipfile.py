"""Pipfile."""

from __future__ import annotations

from fsdp_migrate.workspace.projects.mentions import Mentions
from fsdp_migrate.workspace.projects.requirement import Requirement, UnreadableError, pip_requirement
from fsdp_migrate.workspace.toml import load, table


def read(path: str, _root: str) -> Mentions:
    """The requirements on torch in a Pipfile.

    Raises:
        FileFault: it cannot be read.
    """
    document = load(path)
    mentions = Mentions()
    for main, packages in ((True, table(document, "packages")), (False, table(document, "dev-packages"))):
        for name, specifier in packages.items():
            if name.lower() == "torch":
                mentions.add(path, specifier, _requirement, main=main)
    return mentions


def _requirement(specifier: object) -> Requirement:
    version = specifier.get("version", "*") if isinstance(specifier, dict) else specifier
    if not isinstance(version, str):
        raise UnreadableError(f"torch = {version}")
    text = "torch" if version.strip() == "*" else f"torch {version}"
    requirement = pip_requirement(text)
    if requirement is None:
        raise UnreadableError(text)
    return requirement
