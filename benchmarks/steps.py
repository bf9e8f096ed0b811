"""Training steps of a model of ten million parameters under FSDP, with calls that `trace` looks for in every step."""

from __future__ import annotations

import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.checkpoint import checkpoint


class _Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x)  # without `use_reentrant`
        return x


def main(steps: int) -> None:
    """Train on one rank."""
    warnings.simplefilter("ignore")
    with tempfile.NamedTemporaryFile() as rendezvous:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous.name}", rank=0, world_size=1)
        model = FullyShardedDataParallel(_Layers(), device_id=torch.device("cpu"))
        optim = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            with torch.cpu.amp.autocast(enabled=False):
                model(torch.randn(8, 1024, requires_grad=True)).sum().backward()
            optim.step()
            optim.zero_grad()
        FullyShardedDataParallel.full_optim_state_dict(model, optim)
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
