"""A training of 10 million parameters in one rank, to see what the recorder costs: benchmarks/training.py STEPS."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS = 384, 6


def main(steps: int) -> None:
    """Train on noise; as FSDP2 shards the layers, each step has its collectives."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers = [nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, batch_first=True) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 8))
    mesh = init_device_mesh("cpu", (1,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        model(torch.randn(2, 64, WIDTH)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    if steps < 0:
        print("a line to look out for, which never runs")


if __name__ == "__main__":
    main(int(sys.argv[1]))
