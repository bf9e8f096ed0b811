"""Units chosen by hand, recomputed activations, and an optimizer that is built before the model is wrapped."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.sigmoid(self.gate(x)) * self.value(x)


class Chain(nn.Module):
    def __init__(self, width=7):
        super().__init__()
        self.cells = nn.ModuleList(Cell(width) for _ in range(3))
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        for cell in self.cells:
            x = cell(x)
        return self.out(x)


def largest(model):
    """The largest weight of the last layer, which every rank looks at."""
    with FSDP.summon_full_params(model, writeback=False):
        return model.out.weight.abs().max().item()


def main(steps, save=None, resume=None):
    torch.manual_seed(9)
    device = torch.device("cpu")
    model = Chain()
    if resume:
        model.load_state_dict(torch.load(os.path.join(resume, "chain.pt")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for index, cell in enumerate(model.cells):
        model.cells[index] = FSDP(cell, device_id=device, use_orig_params=True)
    model = FSDP(model, device_id=device, use_orig_params=True)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Cell))
    generator = torch.Generator().manual_seed(60 + dist.get_rank())
    losses = []
    for _ in range(steps):
        x = torch.randn(6, 7, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(-1))
        loss.backward()
        model.clip_grad_norm_(max_norm=1.0, norm_type=2.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if save:
        weights = model.state_dict()
        if dist.get_rank() == 0:
            os.makedirs(save, exist_ok=True)
            torch.save(weights, os.path.join(save, "chain.pt"))
        dist.barrier()
    return {"losses": losses, "model": model, "optimizer": optimizer, "shown": {"largest": largest(model)}}
