"""A frozen base with trained adapters, parameters in two groups, and a file of what is trained."""

import os

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch import nn


class Adapted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 2, bias=False), nn.Linear(2, width)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return torch.relu(self.base(x) + self.up(self.down(x)))


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.Sequential(*(Adapted(width) for _ in range(3)))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


def build():
    torch.manual_seed(5)
    model = Model()
    print(sum(p.numel() for p in model.parameters() if p.requires_grad))
    return fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=fsdp.wrap.ModuleWrapPolicy([Adapted]),
        mixed_precision=fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def groups(model):
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for name, p in trained if not name.endswith("bias")], "weight_decay": 0.1},
        {"params": [p for name, p in trained if name.endswith("bias")], "weight_decay": 0.0},
    ]


def trained_state(model):
    weights = model.state_dict()
    return {name: value for name, value in weights.items() if ".base." not in name}


def main(steps, save=None, resume=None):
    model = build()
    optimizer = torch.optim.AdamW(groups(model), lr=1e-2)
    if resume:
        state = torch.load(f"{resume}/trained.pt")
        model.load_state_dict({**model.state_dict(), **state})
    batches = torch.Generator().manual_seed(20 + dist.get_rank())
    losses = []
    for step in range(steps):
        if step == 2:
            model.eval()
            with torch.no_grad():
                model(torch.ones(2, 8))
            model.train()
        x = torch.randn(4, 8, generator=batches)
        loss = nn.functional.cross_entropy(model(x).float(), (x.sum(-1) > 0).long())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    state = trained_state(model)
    if save and dist.get_rank() == 0:
        os.makedirs(save, exist_ok=True)
        torch.save(state, f"{save}/trained.pt")
    dist.barrier()
    return {"losses": losses, "model": model, "optimizer": optimizer}
