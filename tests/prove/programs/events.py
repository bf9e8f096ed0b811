"""A trainer that runs callbacks on events, in the style of Composer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    CPUOffload,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Event(Enum):
    FIT_START = auto()
    AFTER_BACKWARD = auto()
    BATCH_END = auto()
    FIT_END = auto()


class ComposedModel(nn.Module):
    """A model that knows its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 16))
        self.classifier = nn.Linear(16, 4)

    def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.classifier(self.encoder(batch[0]))

    def loss(self, outputs: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, batch[1])


class State:
    """All that a run needs to go on."""

    def __init__(self, model: ComposedModel, optimizer_of: Callable[[Any], torch.optim.Optimizer]) -> None:
        self.model = model
        self.optimizer_of = optimizer_of
        self.optimizer: torch.optim.Optimizer
        self.batch = 0
        self.loss = torch.zeros(())

    def prepare(self, fsdp_config: dict[str, Any]) -> None:
        self.wrapped = FullyShardedDataParallel(self.model, **fsdp_config)
        self.optimizer = self.optimizer_of(self.wrapped.parameters())

    def state_dict(self) -> dict[str, Any]:
        with full_state_dict(self.wrapped):
            weights = self.wrapped.state_dict()
        optimizer = FullyShardedDataParallel.full_optim_state_dict(self.wrapped, self.optimizer, rank0_only=False)
        return {"state": {"model": weights, "optimizers": {type(self.optimizer).__name__: optimizer}}}


@contextlib.contextmanager
def full_state_dict(model: nn.Module) -> Iterator[None]:
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=False)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        yield


class Callback:
    def run_event(self, event: Event, state: State) -> None:
        getattr(self, event.name.lower(), lambda state: None)(state)


class GradientClipping(Callback):
    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def after_backward(self, state: State) -> None:
        state.wrapped.clip_grad_norm_(self.threshold)


class LossMonitor(Callback):
    def batch_end(self, state: State) -> None:
        mean = state.loss.detach().clone()
        dist.all_reduce(mean)


class CheckpointSaver(Callback):
    """Saves a file for each rank, as a trainer does that does not know who reads it."""

    def fit_end(self, state: State) -> None:
        torch.save(state.state_dict(), f"ep0-ba{state.batch}-rank{dist.get_rank()}.pt")


class Trainer:
    def __init__(self, state: State, callbacks: list[Callback], fsdp_config: dict[str, Any]) -> None:
        self.state = state
        self.callbacks = callbacks
        self.fsdp_config = fsdp_config

    def run_event(self, event: Event) -> None:
        for callback in self.callbacks:
            callback.run_event(event, self.state)

    def fit(self, batches: int) -> None:
        state = self.state
        state.prepare(self.fsdp_config)
        self.run_event(Event.FIT_START)
        for number in range(batches):
            generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
            batch = torch.randn(4, 12, generator=generator), torch.randint(4, (4,), generator=generator)
            state.optimizer.zero_grad(set_to_none=True)
            state.loss = state.model.loss(state.wrapped(batch), batch)
            state.loss.backward()
            self.run_event(Event.AFTER_BACKWARD)
            state.optimizer.step()
            state.batch += 1
            self.run_event(Event.BATCH_END)
        self.run_event(Event.FIT_END)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    fsdp_config = {
        "auto_wrap_policy": ModuleWrapPolicy({nn.Sequential}),
        "cpu_offload": CPUOffload(offload_params=False),
        "device_id": torch.device("cpu"),
        "use_orig_params": True,
    }
    state = State(ComposedModel(), lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    Trainer(state, [GradientClipping(0.5), LossMonitor(), CheckpointSaver()], fsdp_config).fit(3)
    dist.destroy_process_group()
