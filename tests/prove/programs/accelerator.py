"""An object that prepares model and optimizer and saves both, in the style of accelerate."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp.fully_sharded_data_parallel import (
    BackwardPrefetch,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp.fully_sharded_data_parallel import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


@dataclass
class ShardingPlugin:
    """The settings that a configuration file has, and what saving needs of them."""

    backward_prefetch: BackwardPrefetch = BackwardPrefetch.BACKWARD_PRE
    min_num_params: int = 100
    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: FullStateDictConfig = field(
        default_factory=lambda: FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    )
    optim_state_dict_config: FullOptimStateDictConfig = field(
        default_factory=lambda: FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    )


class Accelerator:
    def __init__(self, plugin: ShardingPlugin) -> None:
        self.plugin = plugin
        dist.init_process_group("gloo")

    @property
    def is_main_process(self) -> bool:
        return dist.get_rank() == 0

    def prepare(self, model: nn.Module, optimizer_class: type, **options: Any) -> tuple[FSDP, torch.optim.Optimizer]:
        policy = partial(size_based_auto_wrap_policy, min_num_params=self.plugin.min_num_params)
        model = FSDP(
            model,
            auto_wrap_policy=policy,
            backward_prefetch=self.plugin.backward_prefetch,
            device_id=torch.device("cpu"),
        )
        return model, optimizer_class(model.parameters(), **options)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def clip_grad_norm_(self, model: FSDP, max_norm: float) -> torch.Tensor:
        return model.clip_grad_norm_(max_norm)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        gathered = torch.empty(dist.get_world_size() * tensor.numel())
        dist._all_gather_base(gathered, tensor.detach().reshape(-1))
        return gathered

    def save_state(self, model: FSDP, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        plugin = self.plugin
        with FSDP.state_dict_type(
            model, plugin.state_dict_type, plugin.state_dict_config, plugin.optim_state_dict_config
        ):
            weights = model.state_dict()
        state = FSDP.full_optim_state_dict(model, optimizer)
        if self.is_main_process:
            torch.save(weights, folder / "pytorch_model_fsdp.bin")
            torch.save(state, folder / "optimizer.bin")
        dist.barrier()


def main() -> None:
    accelerator = Accelerator(ShardingPlugin())
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW, lr=0.02)
    for epoch in range(3):
        generator = torch.Generator().manual_seed(7 * epoch + dist.get_rank())
        inputs = torch.randn(4, 8, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :2])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses = accelerator.gather(loss)
        print(f"epoch {epoch}: {losses.mean():.4f}")
    accelerator.save_state(model, optimizer, Path("checkpoint"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
