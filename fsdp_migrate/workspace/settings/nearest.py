"""The configuration file for a folder: the nearest one in it or above it, and no other."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Any

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace.project_files import FileFault, display, read_bytes
from fsdp_migrate.workspace.settings.settings import ConfigError, ConfigFileError, Layer

PYPROJECT = "pyproject.toml"
OWN_FILE = "fsdp-migrate.toml"
TOOL = "fsdp-migrate"
# However somebody may have spelt it.
_LIKE_TOOL = re.compile(rb"fsdp[-_.]?migrate", re.IGNORECASE)


class ConfigFile(NamedTuple):
    """A configuration file: its values, and their meaning."""

    path: str
    values: dict[str, Any]
    layer: Layer

    @property
    def folder(self) -> str:
        """The folder of its patterns and paths."""
        return os.path.dirname(self.path)


class ConfigFiles:
    """The configuration files of a run; every folder is searched once.

    In one folder a fsdp-migrate.toml wins over a pyproject.toml, and a pyproject.toml without a table of this tool is
    ignored. Files are not combined: what the nearest one does not state, those above do not state either. `warnings`
    name tables that are ignored for another reason than a nearer file.
    """

    def __init__(self, only: str | None = None, *, isolated: bool = False) -> None:
        """`only` is the file for all folders; if `isolated`, there is none.

        Raises:
            ConfigFileError: `only` cannot be used.
        """
        self.warnings: list[str] = []
        self._of_folder: dict[str, ConfigFile | None] = {}
        self._fixed = only is not None or isolated
        self._only = None if only is None else _only(os.path.abspath(only))

    def at(self, folder: str, names: Collection[str] | None = None) -> ConfigFile | None:
        """The file for `folder` (an absolute path); `names` are the entries of the folder if they are known.

        Raises:
            ConfigFileError: it cannot be used.
        """
        if self._fixed:
            return self._only
        if folder not in self._of_folder:
            found = None
            if names is None or OWN_FILE in names or PYPROJECT in names:
                found = _own(os.path.join(folder, OWN_FILE)) or self._table(os.path.join(folder, PYPROJECT))
            above = os.path.dirname(folder)
            self._of_folder[folder] = found or (self.at(above) if above != folder else None)
        return self._of_folder[folder]

    def _table(self, path: str) -> ConfigFile | None:
        # Parsing TOML takes a hundred times longer than this look at the bytes.
        try:
            if not os.path.exists(path) or _LIKE_TOOL.search(read_bytes(path)) is None:
                return None
        except FileFault as fault:
            self.warnings.append(f"{display(path)}: cannot be read: {fault}; a [tool.{TOOL}] in it is ignored")
            return None
        tools = _tools(path)
        self.warnings += [
            f"{display(path)}: [tool.{name}] is not read, only [tool.{TOOL}] is: rename the table"
            for name in tools
            if name != TOOL and _LIKE_TOOL.fullmatch(name.encode())
        ]
        return _stated(path, tools)


def _only(path: str) -> ConfigFile:
    if os.path.basename(path) == PYPROJECT:
        found = _stated(path, _tools(path))
        if found is None:
            raise ConfigFileError(display(path), f"there is no [tool.{TOOL}] in it")
        return found
    return _file(path, _load(path))


def _own(path: str) -> ConfigFile | None:
    # Most folders have none, and asking is cheaper than failing.
    return _file(path, _load(path)) if os.path.exists(path) else None


def _tools(path: str) -> dict[str, Any]:
    tools = _load(path).get("tool")
    return tools if isinstance(tools, dict) else {}


def _stated(path: str, tools: dict[str, Any]) -> ConfigFile | None:
    values = tools.get(TOOL)
    return _file(path, values) if isinstance(values, dict) else None


def _load(path: str) -> dict[str, Any]:
    from fsdp_migrate.workspace.toml import load

    try:
        return load(path)
    except FileFault as fault:
        raise ConfigFileError(display(path), f"cannot be read: {fault}") from None


def _advice(path: str, key: str) -> str:
    """What to do about an unknown key."""
    from fsdp_migrate.spelling import closest
    from fsdp_migrate.workspace.settings.table import BY_KEY

    if key == "tool" and os.path.basename(path) != PYPROJECT:
        return f"; the header [tool.{TOOL}] is for pyproject.toml alone"
    return f"{closest(key, BY_KEY)}; `fsdp-migrate config` lists them"


def _file(path: str, values: dict[str, Any]) -> ConfigFile:
    """The settings of a table.

    Raises:
        ConfigFileError: it holds a key that means nothing, or a value that cannot be used.
    """
    from fsdp_migrate.workspace.settings.table import BY_KEY

    read: dict[str, Any] = {}
    for key, value in values.items():
        setting = BY_KEY.get(key)
        if setting is None:
            raise ConfigFileError(display(path), f"{key!r} is not a setting of {TOOL}{_advice(path, key)}")
        try:
            read[setting.field] = setting.kind.read(value)
        except ConfigError as error:
            raise ConfigFileError(display(path), f"{key}: {error}") from None
    layer = Layer(**read)
    if layer.baseline is not None:
        layer = layer._replace(baseline=os.path.dirname(path) / layer.baseline)
    return ConfigFile(path, values, layer)
