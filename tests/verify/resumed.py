"""A training program as FSDP1 programs are: it saves a file and a folder, and goes on from them on more ranks.

tests/verify/test_resumed.py runs it as it is, and as `--target dcp` rewrites it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,  # noqa: N817
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(use_orig_params):
    torch.manual_seed(0)
    # Each rank of four has a row of each parameter (rank-without-shards, FSDP720).
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)) for _ in range(2)]
    model = FSDP(
        torch.nn.Sequential(*layers, torch.nn.Linear(8, 4)),
        use_orig_params=use_orig_params,
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Sequential}),
        device_id=torch.device("cpu"),
    )
    optim = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    return model, optim


def train(model, optim, steps):
    """All ranks see the same batches, so that their number makes no difference."""
    losses = []
    for step in steps:
        torch.manual_seed(100 + step)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optim.step()
        optim.zero_grad()
        losses.append(loss.item())
    return losses


def save_file(use_orig_params, path):
    model, optim = build(use_orig_params)
    losses = train(model, optim, range(3))
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config, optim_config):
        weights = model.state_dict()
        moments = FSDP.optim_state_dict(model, optim)
    if dist.get_rank() == 0:
        torch.save({"model": weights, "optim": moments, "step": 3}, path)
    dist.barrier()
    return losses


def resume_file(use_orig_params, path):
    model, optim = build(use_orig_params)
    checkpoint = torch.load(path, weights_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(checkpoint["model"])
        optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, checkpoint["optim"]))
    return train(model, optim, range(checkpoint["step"], 6))


def save_folder(use_orig_params, path):
    model, optim = build(use_orig_params)
    losses = train(model, optim, range(3))
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        checkpoint = {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optim), "step": 3}
        dist_cp.save_state_dict(checkpoint, dist_cp.FileSystemWriter(path))
    return losses


def resume_folder(use_orig_params, path):
    model, optim = build(use_orig_params)
    reader = dist_cp.FileSystemReader(path)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        checkpoint = {"model": model.state_dict(), "step": 0}
        dist_cp.load_state_dict(checkpoint, reader)
        model.load_state_dict(checkpoint["model"])
        found = load_sharded_optimizer_state_dict(checkpoint["model"], "optim", reader)
        optim.load_state_dict(FSDP.optim_state_dict_to_load(model, optim, found["optim"]))
    return train(model, optim, range(checkpoint["step"], 6))
