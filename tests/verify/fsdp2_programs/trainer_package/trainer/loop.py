import contextlib
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)

from .network import Regressor
from .sharding import wrap


class Trainer:
    def __init__(self, config):
        torch.manual_seed(3)
        self.config = config
        self.model = wrap(Regressor(), config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3, weight_decay=0.2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

    def step(self, number):
        total = 0.0
        for micro in range(self.config.accumulate):
            is_last = micro == self.config.accumulate - 1
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                total += self._backward(100 * number + micro)
        self.model.clip_grad_norm_(self.config.clip)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return total

    def _backward(self, seed):
        generator = torch.Generator().manual_seed(seed + 7 * dist.get_rank())
        x = torch.randn(6, 5, generator=generator)
        loss = (self.model(x) - x.sum(-1)).square().mean() / self.config.accumulate
        loss.backward()
        shown = loss.detach()
        dist.all_reduce(shown)
        return shown.item()

    def describe(self):
        units = FSDP.fsdp_modules(self.model)
        return {"is sharded": isinstance(self.model, FSDP), "units": len(units)}

    def _full(self):
        return FSDP.state_dict_type(
            self.model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=False),
            FullOptimStateDictConfig(rank0_only=False, offload_to_cpu=False),
        )

    def save(self, folder):
        with self._full():
            state = {"model": self.model.state_dict(), "optimizer": FSDP.optim_state_dict(self.model, self.optimizer)}
        if dist.get_rank() == 0:
            os.makedirs(folder, exist_ok=True)
            torch.save(state, os.path.join(folder, "state.pt"))
        dist.barrier()

    def load(self, folder):
        state = torch.load(os.path.join(folder, "state.pt"), weights_only=False)
        with self._full():
            self.model.load_state_dict(state["model"])
            moments = FSDP.optim_state_dict_to_load(self.model, self.optimizer, state["optimizer"])
        self.optimizer.load_state_dict(moments)
