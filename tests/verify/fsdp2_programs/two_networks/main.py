"""A generator and a critic, sharded by one function, each with an optimizer and a file of its own."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

CPU = torch.device("cpu")


class Hidden(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, width), nn.GELU())


def net(inside, outside, width=10):
    return nn.Sequential(nn.Linear(inside, width), Hidden(width), Hidden(width), nn.Linear(width, outside))


def shard(module):
    return FullyShardedDataParallel(module, auto_wrap_policy=ModuleWrapPolicy({Hidden}), device_id=CPU)


def write(model, path):
    config = FullStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        weights = model.state_dict()
    if dist.get_rank() == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save(weights, path)
    dist.barrier()


def main(steps, save=None, resume=None):
    torch.manual_seed(11)
    generator, critic = net(3, 4), net(4, 1)
    if resume:
        generator.load_state_dict(torch.load(f"{resume}/generator.pt"))
        critic.load_state_dict(torch.load(f"{resume}/critic.pt"))
    generator, critic = shard(generator), shard(critic)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    noise = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        real = torch.randn(8, 4, generator=noise) * 0.3 + 1
        made = generator(torch.randn(8, 3, generator=noise))
        loss = critic(made.detach()).mean() - critic(real).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        fooled = -critic(made).mean()
        fooled.backward()
        of_generator.step()
        shown = torch.stack([loss.detach(), fooled.detach()])
        dist.all_reduce(shown)
        losses += shown.tolist()
    if save:
        write(generator, f"{save}/generator.pt")
        write(critic, f"{save}/critic.pt")
    return {"losses": losses, "model": generator, "optimizer": of_generator}
