"""What torch's FSDP needs to give right values on a CPU: `verify` has it, and a run on a CPU gets the same."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from ..after_import import after_import

PACKAGE = "fsdp_migrate_worker"  # the name that the files of verify's ranks have where they are loaded by path


def install() -> None:
    """Have it installed with torch's FSDP, where there is no GPU."""
    after_import("torch.distributed.fsdp", _install)


def _install(_: ModuleType) -> None:
    import torch

    if torch.cuda.is_available():
        return
    here = os.path.dirname(os.path.abspath(__file__))
    package = ModuleType(PACKAGE)
    package.__path__ = [os.path.join(here, "..", "..", "verify", "worker")]
    sys.modules[PACKAGE] = package
    importlib.import_module(f"{PACKAGE}.workarounds").install()
