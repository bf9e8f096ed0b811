"""Follows names through the modules of a project: what a file imports from others, and who imports it."""

from __future__ import annotations

from fsdp_migrate.workspace.modules.project import Modules

__all__ = ["Modules"]
