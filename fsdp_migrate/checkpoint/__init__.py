"""Checkpoints on disk: what one holds, what reads it, and turning one into another.

`inspect` runs nothing and needs no torch; `conversion` needs it.
"""

from __future__ import annotations

from fsdp_migrate.checkpoint.contents import CheckpointError, Contents
from fsdp_migrate.checkpoint.opening import inspect

__all__ = ["CheckpointError", "Contents", "inspect"]
