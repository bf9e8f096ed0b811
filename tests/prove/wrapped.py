"""A program for the ranks: one small training for each wrapper that a model may have, all from the same start."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

STEPS = 2
CPU = torch.device("cpu")


class Block(nn.Module):
    """Odd sizes, so that shards are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 7)
        self.norm = nn.LayerNorm(7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu() + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 7)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(7, 3, bias=False)
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.register_buffer("passing", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x).mean(1)
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale * self.passing


def wrapped(kind: str, net: Net) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(net, mesh=mesh)
    if kind in ("flat", "orig"):
        policy = ModuleWrapPolicy({Block})
        return FullyShardedDataParallel(net, auto_wrap_policy=policy, use_orig_params=kind == "orig", device_id=CPU)
    return net


def batches() -> Iterator[torch.Tensor]:
    # The same on both ranks, so that a model that nothing wraps trains as the others do.
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        yield torch.randint(0, 11, (4, 5), generator=generator)


def train(kind: str) -> None:
    torch.manual_seed(1)
    model = wrapped(kind, Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for batch in batches():
        model(batch).square().mean().backward()
        if kind in ("flat", "orig"):
            model.clip_grad_norm_(1e6)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
    if kind in ("flat", "fsdp2"):
        dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"saved-{kind}")
    elif kind != "orig" and dist.get_rank() == 0:
        torch.save({"model": get_model_state_dict(model)}, f"{kind}.pt")
    if kind == "fsdp2":
        loaded = {"model": get_model_state_dict(model)}
        dcp.load(loaded, checkpoint_id="saved-fsdp2")
        with torch.no_grad():
            # Holds the whole parameters until the next step: those of the optimizer are still the shards.
            model(batch)


dist.init_process_group("gloo")
for name in sys.argv[1:]:
    train(name)
dist.destroy_process_group()
warnings.warn(f"at the end in {os.getcwd()}/out", stacklevel=1)
