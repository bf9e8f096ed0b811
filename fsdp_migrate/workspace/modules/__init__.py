"""Names followed through the modules of a project: what a file imports from its neighbours, and who imports it."""

from __future__ import annotations

from fsdp_migrate.workspace.modules.project import Modules

__all__ = ["Modules"]
