"""The settings that hold for a path, and where each comes from: `fsdp-migrate config`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.project_files import display
from fsdp_migrate.workspace.projects import Projects
from fsdp_migrate.workspace.settings.nearest import ConfigFile, ConfigFiles
from fsdp_migrate.workspace.settings.table import SETTINGS, Setting

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).parent.parent / "workspace" / "settings" / "schema.json"


class Effective(NamedTuple):
    """A setting as TOML has it (None where it has no value), and what decided on it."""

    key: str
    value: Any
    source: str


def effective(path: str, files: ConfigFiles) -> list[Effective]:
    """The settings of a file or folder without any options.

    Raises:
        ConfigFileError: its configuration file cannot be used.
    """
    inside = os.path.join(path, "any.py") if os.path.isdir(path) else path
    config = files.at(os.path.dirname(os.path.abspath(inside)))
    target = None if config is None else config.layer.target
    project = Projects(files).of(SourceFile(inside, inside), target=target)
    torch = Effective("torch", str(project.torch), project.source)
    return [torch if setting.key == "torch" else _of(setting, config) for setting in SETTINGS]


def lines(found: Sequence[Effective]) -> Iterator[str]:
    """The settings as TOML, with what decided on each as a comment."""
    for setting in found:
        if setting.value is None:
            yield f"# {setting.key} is not set ({setting.source})"
        else:
            yield f"{setting.key} = {_toml(setting.value)}  # {setting.source}"


def document(path: str, found: Sequence[Effective], *, excluded: bool) -> str:
    """The settings as JSON; `excluded` says that they leave the path itself out."""
    settings = {setting.key: {"value": setting.value, "source": setting.source} for setting in found}
    about = {"schema_version": SCHEMA_VERSION, "path": display(path), "excluded": excluded}
    return json.dumps({**about, "settings": settings}, indent=2)


def _of(setting: Setting, config: ConfigFile | None) -> Effective:
    if config is not None and setting.key in config.values:
        return Effective(setting.key, config.values[setting.key], display(config.path))
    return Effective(setting.key, setting.default, f"default: {setting.unset}" if setting.unset else "default")


def _toml(value: Any) -> str:
    """A value on one line; TOML writes all but tables as JSON does."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
