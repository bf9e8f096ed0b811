"""The settings of a run: options and configuration files, and what follows from them for each file."""

from fsdp_migrate.workspace.settings.settings import (
    CHECKPOINTS,
    HELPERS,
    TARGETS,
    ConfigError,
    ConfigFileError,
    Layer,
    Project,
    Settings,
    selectors,
)

__all__ = [
    "CHECKPOINTS",
    "HELPERS",
    "TARGETS",
    "ConfigError",
    "ConfigFileError",
    "Layer",
    "Project",
    "Settings",
    "selectors",
]
