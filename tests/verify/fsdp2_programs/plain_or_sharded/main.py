"""One loop for a plain model and for a sharded one, with sharded checkpoints of the second."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from strategy import prepare
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x):
        return self.second(torch.sigmoid(self.first(x)))


def sharded(model):
    configs = ShardedStateDictConfig(offload_to_cpu=False), ShardedOptimStateDictConfig(offload_to_cpu=False)
    return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, *configs)


def clip(model, bound):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(bound)
    return nn.utils.clip_grad_norm_(model.parameters(), bound)


def save_to(folder, model, optimizer):
    with sharded(model):
        state = {"weights": model.state_dict(), "moments": FSDP.optim_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=folder)


def load_from(folder, model, optimizer):
    with sharded(model):
        state = {"weights": model.state_dict(), "moments": FSDP.optim_state_dict(model, optimizer)}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["weights"])
        moments = FSDP.optim_state_dict_to_load(model, optimizer, state["moments"])
        optimizer.load_state_dict(moments)


def train(model, optimizer, batches):
    losses = []
    for x in batches:
        loss = (model(x) - x).square().mean()
        loss.backward()
        norm = clip(model, 0.05)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item() + float(norm))
    return losses


def main(steps, save=None, resume=None):
    torch.manual_seed(2)
    model = prepare(Encoder(), os.environ.get("STRATEGY", "shard"))
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(40 + dist.get_rank())
    batches = [torch.randn(5, 6, generator=generator) for _ in range(steps + 2)]
    train(model, optimizer, batches[:2])
    if resume:
        load_from(resume, model, optimizer)
    losses = train(model, optimizer, batches[2:])
    if save:
        save_to(save, model, optimizer)
    return {"losses": losses, "model": model, "optimizer": optimizer}
