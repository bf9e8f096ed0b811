"""TOML files."""

from __future__ import annotations

import sys
from typing import Any

from fsdp_migrate.workspace.project_files import FileFault, read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load(path: str) -> dict[str, Any]:
    """The contents of a TOML file.

    Raises:
        FileFault: it cannot be read or is no TOML.
    """
    try:
        document: dict[str, Any] = tomllib.loads(read_bytes(path).decode("utf-8-sig"))
    except ValueError as error:
        raise FileFault(f"no valid TOML: {error}") from None
    return document


def table(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table under `keys`, empty where there is none."""
    current: Any = document
    for key in keys:
        current = current.get(key) if isinstance(current, dict) else None
    return current if isinstance(current, dict) else {}
