"""A module with hooks, and a strategy that shards and saves it, in the style of Lightning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_checkpoint
from torch import nn
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class SharedModule(nn.Module, ABC):
    """What a user writes: the step and the optimizer."""

    @abstractmethod
    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor: ...

    @abstractmethod
    def configure_optimizers(self) -> torch.optim.Optimizer: ...


class Autoencoder(SharedModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
        self.decoder = nn.Linear(8, 16)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(batch))

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.trainer_model(batch), batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.trainer_model.parameters(), lr=5e-3)


class ShardedStrategy:
    """What the trainer asks for everything that has to do with processes."""

    def setup(self, module: SharedModule) -> FullyShardedDataParallel:
        policy = ModuleWrapPolicy({nn.Sequential})
        model = FullyShardedDataParallel(
            module, auto_wrap_policy=policy, device_mesh=mesh(), device_id=torch.device("cpu"), use_orig_params=True
        )
        object.__setattr__(module, "trainer_model", model)
        return model

    def _sharded(self, model: FullyShardedDataParallel) -> Any:
        config = ShardedStateDictConfig(offload_to_cpu=True)
        return FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config)

    def save_checkpoint(self, model: FullyShardedDataParallel, optimizer: torch.optim.Optimizer, path: Path) -> None:
        with self._sharded(model):
            state = {"model": model.state_dict()}
            state["optimizer_0"] = FullyShardedDataParallel.optim_state_dict(model, optimizer)
        dist_checkpoint.save_state_dict(state, storage_writer=FileSystemWriter(path, single_file_per_rank=True))
        if dist.get_rank() == 0:
            torch.save({"version": 1, "loops": {"epoch": 0}}, path / "meta.pt")
        dist.barrier()

    def load_checkpoint(self, model: FullyShardedDataParallel, optimizer: torch.optim.Optimizer, path: Path) -> None:
        with self._sharded(model):
            state = {"model": model.state_dict()}
            dist_checkpoint.load_state_dict(state, storage_reader=FileSystemReader(path))
            model.load_state_dict(state["model"])
            found = load_sharded_optimizer_state_dict(state["model"], "optimizer_0", FileSystemReader(path))
            flat = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, found["optimizer_0"])
        optimizer.load_state_dict(flat)


def mesh() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (dist.get_world_size(),))


class Trainer:
    def __init__(self, strategy: ShardedStrategy, steps: int, root: Path) -> None:
        self.strategy = strategy
        self.steps = steps
        self.root = root

    def fit(self, module: SharedModule) -> None:
        model = self.strategy.setup(module)
        optimizer = module.configure_optimizers()
        if self.root.exists():
            self.strategy.load_checkpoint(model, optimizer, self.root)
        for number in range(self.steps):
            generator = torch.Generator().manual_seed(2 * number + dist.get_rank())
            loss = module.training_step(torch.randn(4, 16, generator=generator), number)
            loss.backward()
            model.clip_grad_norm_(0.5)
            optimizer.step()
            optimizer.zero_grad()
            if number == 1:
                self.strategy.save_checkpoint(model, optimizer, self.root)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    Trainer(ShardedStrategy(), 3, Path("step=1.ckpt")).fit(Autoencoder())
    dist.destroy_process_group()
