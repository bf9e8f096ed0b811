"""Warnings that the data does not have, of modules whose names it lacks or from a constant of another module.

Since when, category and text, read from the wheels of torch 2.0 to 2.14 (see `tools.sweep_deprecations`); newer
releases count as the newest of those.
"""

from __future__ import annotations

# `torch.distributed.nn` passes on what its module `functional` has.
_NN = "torch.distributed.nn"
_FUNCTIONAL = "torch.distributed._functional_collectives"
_COLLECTIVES = {
    "all_gather": "all_gather_single",
    "all_reduce": "all_reduce",
    "all_to_all_single": "all_to_all_single",
    "broadcast": "broadcast",
    "reduce_scatter": "reduce_scatter_single",
}
WARNINGS = (
    {
        f"{module}.{name}": ("2.12.0", "FutureWarning", f"use `{_FUNCTIONAL}.{new}` instead")
        for module in (_NN, f"{_NN}.functional")
        for name, new in _COLLECTIVES.items()
    }
    | {
        "torch.distributed._symmetric_memory.enable_symm_mem_for_group": (
            "2.11.0",
            "FutureWarning",
            "There is no need to call this function anymore.",
        )
    }
    | {
        f"torch.distributed._shard.sharded_tensor{module}.ShardedTensor.{name}": (
            "2.1.0",
            "FutureWarning",
            "Please use DTensor instead and we are deprecating ShardedTensor.",
        )
        for module in ("", ".api")
        for name in ("reshard", "_init_from_local_tensor")
    }
)
