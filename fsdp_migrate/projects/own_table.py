"""This tool's own settings beside the code: `[tool.fsdp-migrate]` of a pyproject.toml, or a fsdp-migrate.toml."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fsdp_migrate.config import ConfigFileError, closest
from fsdp_migrate.projects.mentions import FileFault, display, read_bytes
from fsdp_migrate.projects.toml import load, table

PYPROJECT = "pyproject.toml"
OWN_FILE = "fsdp-migrate.toml"
TOOL = "fsdp-migrate"

KEYS = ("torch",)


@dataclass(frozen=True)
class OwnTable:
    """The settings that a folder's own file gives."""

    path: str
    values: dict[str, Any]


def own_table(folder: str, names: Collection[str]) -> OwnTable | None:
    """The settings given in `folder`, whose entries are `names`; None if there are none.

    A fsdp-migrate.toml goes before a pyproject.toml.

    Raises:
        ConfigFileError: the file cannot be read, or holds a key that means nothing.
    """
    if OWN_FILE in names:
        path = os.path.join(folder, OWN_FILE)
        return _checked(path, _load(path))
    path = os.path.join(folder, PYPROJECT)
    # Parsing TOML takes a hundred times longer than this look at the bytes.
    if PYPROJECT not in names or not _mentions_tool(path):
        return None
    tools = table(_load(path), "tool")
    return _checked(path, table(tools, TOOL)) if TOOL in tools else None


def _mentions_tool(path: str) -> bool:
    try:
        return TOOL.encode() in read_bytes(path)
    except FileFault:  # told when the requirements are read
        return False


def _load(path: str) -> dict[str, Any]:
    try:
        return load(path)
    except FileFault as fault:
        raise ConfigFileError(display(path), f"cannot be read: {fault}") from None


def _checked(path: str, values: dict[str, Any]) -> OwnTable:
    for key in values:
        if key not in KEYS:
            raise ConfigFileError(display(path), f"{key!r} is no setting of {TOOL}{closest(key, KEYS)}")
    return OwnTable(path, values)
