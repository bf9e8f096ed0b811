"""Whole programs before and after their conversion: `python -m tests.verify.converted_programs BEFORE AFTER WORK ...`.

Each program is a folder with `main.py`, whose `main(steps, save, resume)` trains and gives losses, model and optimizer.
Six runs on two ranks: both save, each goes on from its own files, and each goes on from the other's. A line of JSON
for each comparison has the folder BEFORE and the largest differences.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint  # the ranks are to find it loaded
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)

from tests.verify.against_fsdp1 import run

RANKS, STEPS = 2, 4


def whole(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """All parameters and the state of the optimizer, by name."""
    if isinstance(model, FullyShardedDataParallel):
        configs = (
            FullStateDictConfig(offload_to_cpu=False, rank0_only=False),
            FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False),
        )
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, *configs):
            return model.state_dict(), FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
    options = StateDictOptions(full_state_dict=True)
    state = get_optimizer_state_dict(model, optimizer, options=options)["state"]
    return get_model_state_dict(model, options=options), state


def work(folder: str, path: str, save: str | None, resume: str | None) -> dict[str, Any]:
    """Run a program on this rank, and write what it shows to `path`."""
    sys.path.insert(0, folder)
    import main  # type: ignore[import-not-found]

    shown = main.main(STEPS, save, resume)
    parameters, state = whole(shown["model"], shown["optimizer"])
    if dist.get_rank() == 0:
        found = {"losses": shown["losses"], "parameters": parameters, "state": state, "shown": shown.get("shown", {})}
        torch.save(found, path)
    dist.barrier()
    return {}


def parts(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """What is in a nested value, by where it is."""
    if isinstance(value, (dict, list, tuple)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(inner, f"{where}/{key}")
    else:
        yield where, value


def distance(one: Any, other: Any) -> float:
    """The largest difference of two nested values, infinite where they do not compare."""
    left, right = dict(parts(one)), dict(parts(other))
    if left.keys() != right.keys():
        return float("inf")
    return max((_apart(value, right[key]) for key, value in left.items()), default=0.0)


def _apart(one: Any, other: Any) -> float:
    first, second = torch.as_tensor(one), torch.as_tensor(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    return float((first.double() - second.double()).abs().max()) if first.numel() else 0.0


def compare(before: str, after: str, folder: str) -> None:
    """Run both programs and compare them."""

    def launch(name: str, program: str, save: str | None = None, resume: str | None = None) -> None:
        run(name, RANKS, functools.partial(work, program, f"{folder}/{name}.pt", save, resume))

    launch("first_before", before, save=f"{folder}/old")
    launch("first_after", after, save=f"{folder}/new")
    launch("own_before", before, resume=f"{folder}/old")
    launch("own_after", after, resume=f"{folder}/new")
    launch("crossed_after", after, resume=f"{folder}/old")
    launch("crossed_before", before, resume=f"{folder}/new")
    pairs = {
        "from scratch": ("first_before", "first_after"),
        "from its own files": ("own_before", "own_after"),
        "from old files": ("own_before", "crossed_after"),
        "the old program from new files": ("own_after", "crossed_before"),
    }
    for case, names in pairs.items():
        one, other = (torch.load(f"{folder}/{name}.pt", weights_only=False) for name in names)
        found = {key: distance(one[key], other[key]) for key in one}
        print(json.dumps({"program": before, "case": case, **found}), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with open(os.devnull, "w") as sys.stderr:  # FSDP1 warns much
        for place in range(1, len(sys.argv), 3):
            compare(*sys.argv[place : place + 3])
