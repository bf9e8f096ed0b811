"""A training program on two ranks of the CPU: it writes checkpoints as FSDP1 programs do, and goes on from them.

    python -m tests.checkpoint.trainer JOB ...

A job is `COMMAND,ORIG,PATH`: ORIG is use_orig_params, and the commands are

    write   into the folder PATH: full.pt, sharded/ (DCP), sharded-RANK.pt, local-RANK.pt
    old     load PATH into FSDP1 by its own methods
    new     load PATH into FSDP1 by torch.distributed.checkpoint.state_dict
    fsdp2   load PATH into FSDP2

Each goes on for three steps and prints one line of JSON: for each rank the losses, and the values of `step` at the end.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as dsd
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,  # noqa: N817
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from fsdp_migrate.verify.worker import workarounds

RANKS = 2
FULL = dsd.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def plain() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 7), torch.nn.Tanh(), torch.nn.Linear(7, 8)) for _ in range(2)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 5))


def fsdp1(orig: bool) -> torch.nn.Module:
    return FSDP(
        plain(),
        use_orig_params=orig,
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Sequential}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
    )


def fsdp2() -> torch.nn.Module:
    model = plain()
    for layer in model[:2]:
        fully_shard(layer)
    return fully_shard(model)


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train(model: torch.nn.Module, optim: torch.optim.Optimizer, first: int, steps: int) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        torch.manual_seed(100 * step + dist.get_rank())
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optim.step()
        optim.zero_grad()
        losses.append(loss.item())
    return losses


def after(model: torch.nn.Module, optim: torch.optim.Optimizer) -> dict[str, Any]:
    losses = train(model, optim, 3, 3)
    return {"losses": losses, "steps": sorted({float(state["step"]) for state in optim.state.values() if state})}


def write(orig: str, folder: str) -> dict[str, Any]:
    model = fsdp1(orig == "True")
    optim = optimizer(model)
    train(model, optim, 0, 3)
    root, rank = Path(folder), dist.get_rank()
    configs = (FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *configs):
        full = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optim), "epoch": 3}
    if rank == 0:
        torch.save(full, root / "full.pt")
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        shards = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optim), "epoch": 3}
        torch.save(shards, root / f"sharded-{rank}.pt")
        dcp.save(shards, storage_writer=dcp.FileSystemWriter(root / "sharded"))
    kind = StateDictType.SHARDED_STATE_DICT if orig == "True" else StateDictType.LOCAL_STATE_DICT
    with FSDP.state_dict_type(model, kind):
        torch.save({"model": model.state_dict(), "optimizer": optim.state_dict()}, root / f"local-{rank}.pt")
    return after(model, optim)


def old(orig: str, source: str) -> dict[str, Any]:
    model = fsdp1(orig == "True")
    optim = optimizer(model)
    kind = StateDictType.SHARDED_STATE_DICT if os.path.isdir(source) else StateDictType.FULL_STATE_DICT
    with FSDP.state_dict_type(model, kind):
        if os.path.isdir(source):
            from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict

            found = {"model": model.state_dict(), "epoch": 0}
            dcp.load(found, storage_reader=dcp.FileSystemReader(source))
            reader = dcp.FileSystemReader(source)
            found |= load_sharded_optimizer_state_dict(found["model"], "optimizer", reader)
        else:
            found = torch.load(source, weights_only=True)
        assert found["epoch"] == 3
        model.load_state_dict(found["model"])
        optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, found["optimizer"]))
    return after(model, optim)


def new(orig: str, source: str) -> dict[str, Any]:
    return _by_dcp(fsdp1(orig == "True"), source)


def fsdp2_loads(_: str, source: str) -> dict[str, Any]:
    return _by_dcp(fsdp2(), source)


def _by_dcp(model: torch.nn.Module, source: str) -> dict[str, Any]:
    optim = optimizer(model)
    if os.path.isdir(source):
        found = {
            "model": dsd.get_model_state_dict(model),
            "optimizer": dsd.get_optimizer_state_dict(model, optim),
            "epoch": 0,
        }
        dcp.load(found, storage_reader=dcp.FileSystemReader(source))
        options = None
    else:
        found = torch.load(source, weights_only=True) if dist.get_rank() == 0 else {"epoch": 3}
        options = FULL
    assert found["epoch"] == 3
    dsd.set_model_state_dict(model, found.get("model", {}), options=options)
    dsd.set_optimizer_state_dict(model, optim, found.get("optimizer", {}), options=options)
    return after(model, optim)


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {"write": write, "old": old, "new": new, "fsdp2": fsdp2_loads}


def _rank(rank: int, store: str, jobs: list[str]) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    workarounds.install()
    for job in jobs:
        command, orig, path = job.split(",", 2)
        every: list[Any] = [None] * RANKS
        dist.all_gather_object(every, COMMANDS[command](orig, path))
        if rank == 0:
            sys.stdout.write(json.dumps(every) + "\n")
            sys.stdout.flush()
    dist.destroy_process_group()


def main(jobs: list[str]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(_rank, (os.path.join(folder, "store"), jobs), RANKS, start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1:])
