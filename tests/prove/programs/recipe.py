"""A recipe: a language model under FSDP, in the shape of the fine-tuning scripts that teams copy from one another.

Mixed precision, activation checkpointing, gradient accumulation, clipping, a schedule, and a checkpoint to go on from.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import (
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


@dataclass
class TrainConfig:
    lr: float = 1e-2
    weight_decay: float = 0.1
    batches: int = 6
    accumulate: int = 2
    max_norm: float = 1.0
    vocabulary: int = 48
    width: int = 16
    layers: int = 2
    checkpoint: str = "checkpoints/last.pt"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.relu(self.up(self.norm(hidden))))


class LanguageModel(nn.Module):
    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Block(config.width) for _ in range(config.layers))
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def shard(model: nn.Module) -> FSDP:
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    return FSDP(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def checkpoint_activations(model: nn.Module) -> None:
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, Block)
    )


def groups(model: nn.Module, config: TrainConfig) -> list[dict]:
    named = list(model.named_parameters())
    decayed = [parameter for name, parameter in named if "norm" not in name]
    others = [parameter for name, parameter in named if "norm" in name]
    return [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]


def save(model: FSDP, optimizer: torch.optim.Optimizer, batch: int, path: Path) -> None:
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        weights = model.state_dict()
    state = FSDP.full_optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        path.parent.mkdir(exist_ok=True)
        torch.save({"model": weights, "optimizer": state, "batch": batch}, path)
    dist.barrier()


def load(model: FSDP, optimizer: torch.optim.Optimizer, path: Path) -> int:
    found = torch.load(path, map_location="cpu", weights_only=False)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(found["model"])
    full = found["optimizer"] if dist.get_rank() == 0 else None
    optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer))
    return found["batch"]


def train(config: TrainConfig, resume: bool) -> None:
    rank = dist.get_rank()
    model = shard(LanguageModel(config))
    checkpoint_activations(model)
    optimizer = torch.optim.AdamW(groups(model, config), lr=config.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    first = load(model, optimizer, Path(config.checkpoint)) if resume else 0
    for batch in range(first, first + config.batches):
        tokens = torch.randint(config.vocabulary, (2, 9), generator=torch.Generator().manual_seed(100 * batch + rank))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        (loss / config.accumulate).backward()
        if (batch + 1) % config.accumulate == 0:
            model.clip_grad_norm_(config.max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if (batch + 1) // config.accumulate == 2:
                save(model, optimizer, batch + 1, Path(config.checkpoint))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    train(TrainConfig(), arguments.resume)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
