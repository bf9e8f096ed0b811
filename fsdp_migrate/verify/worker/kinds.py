"""Names of torch that moved, or that torch does not export to type checkers, as they are on this release."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed


def _find(name: str, *modules: str) -> Any:
    """`name` from the first of these modules that this release has it in."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this torch has no {name}; 2.1 or newer is needed")


ShardedTensor: Any = _find("ShardedTensor", "torch.distributed._shard.sharded_tensor")
# The package became public in torch 2.5; until then another one had its name.
DTensor: Any = _find("DTensor", "torch.distributed.tensor", "torch.distributed._tensor")
# The module became private in torch 2.2.
FlatParamHandle: Any = _find(
    "FlatParamHandle", "torch.distributed.fsdp._flat_param", "torch.distributed.fsdp.flat_param"
)
cpu: Any = torch.cpu
c10d: Any = torch.distributed
