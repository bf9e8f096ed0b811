"""What a scenario is given."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import model as models
from .oracle import Oracle
from .protocol import Point
from .snapshot import Snapshot, Unobservable, optimizer_state, take


class Skip(Exception):
    """The scenario cannot run on this point of the axes; the message says why."""


class Trial:
    """One run of one program on one rank.

    `rank` and `world_size` are those of the default process group, `device` is where this rank computes. The current
    folder is fresh and shared by the ranks of this machine.
    """

    def __init__(self, point: Point, device: torch.device) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.device = device
        self._point = point
        self._models = 0
        self._steps = 0
        self._trains = 0
        self.training = False
        self.observations: list[tuple[str, Snapshot]] = []
        self.fixed: dict[str, Any] = {}
        self.used: set[str] = set()
        self.oracle = Oracle(self.rank, self.world_size, device)

    def model(self, **fsdp_kwargs: Any) -> FullyShardedDataParallel:
        """A small network under FSDP: nested wrapping, odd sizes, a frozen layer, a buffer.

        The axes `use_orig_params` and `sharding_strategy` and a wrap policy are filled in unless `fsdp_kwargs` has
        them. Each model of a scenario starts from other weights; the ranks agree on them.

        Raises:
            Skip: the strategy of the axes does not go with `fsdp_kwargs`.
        """
        plain = self.plain_model()
        self.oracle.built(plain)
        if "mixed_precision" in fsdp_kwargs and fsdp_kwargs["mixed_precision"] not in (None, _full_precision()):
            self.oracle.stop("it trains in mixed precision")
        kwargs = {"auto_wrap_policy": ModuleWrapPolicy({models.Layer, models.Mixer}), **self._axes(fsdp_kwargs)}
        kwargs.setdefault("device_id", self.device)
        return FullyShardedDataParallel(plain, **kwargs)

    def plain_model(self) -> nn.Module:
        """The next network without FSDP, on `device`."""
        torch.manual_seed(self._models)
        self._models += 1
        return models.Network().to(self.device)

    def _axes(self, fsdp_kwargs: dict[str, Any]) -> dict[str, Any]:
        kwargs = dict(fsdp_kwargs)
        if "use_orig_params" in kwargs:
            self.fixed["use_orig_params"] = kwargs["use_orig_params"]
        else:
            self.used.add("use_orig_params")
            kwargs["use_orig_params"] = self._point.use_orig_params
        if "sharding_strategy" in kwargs:
            self.fixed["strategy"] = getattr(kwargs["sharding_strategy"], "name", "FULL_SHARD")
            return kwargs
        self.used.add("strategy")
        kwargs["sharding_strategy"] = ShardingStrategy[self._point.strategy]
        if self._point.strategy.startswith("HYBRID"):
            if "process_group" in kwargs or "device_mesh" in kwargs:
                raise Skip(f"it passes its own process group, which {self._point.strategy} does not accept")
            kwargs["process_group"] = self._two_by_two()
        return kwargs

    def _two_by_two(self) -> tuple[Any, Any]:
        """The groups that this rank shards and replicates in: two replicas of equal size."""
        half = self.world_size // 2
        replicas = [list(range(half)), list(range(half, 2 * half))]
        shard = [dist.new_group(ranks) for ranks in replicas][self.rank // half]
        pairs = [dist.new_group(list(ranks)) for ranks in zip(*replicas)]
        return shard, pairs[self.rank % half]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of the axes over `model`, with two parameter groups."""
        self.used.add("optimizer")
        return models.make_optimizer(self._point.optimizer, model)

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
        """Train `steps` steps and return this rank's losses; every step of a scenario has its own data.

        What the optimizer held before and after, and the losses, count as observed.
        """
        span = range(self._steps, self._steps + steps)
        self._steps += steps
        self._trains += 1
        name = f"train {self._trains}"
        held = take(optimizer_state(optimizer))
        self.training = True
        try:
            mine = self.oracle.train(model, optimizer, span, name) if _is_network(model) else self._foreign()
            losses = [self._step(model, optimizer, step) for step in span]
        finally:
            self.training = False
        self.oracle.trained(model, optimizer, mine, losses, name)
        for what, snapshot in (
            ("optimizer before", held),
            ("losses", take(losses)),
            ("optimizer after", take(optimizer_state(optimizer))),
        ):
            self._note(f"{name}: {what}", snapshot)
        return losses

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
        loss = models.loss_of(model, models.batch(step, self.rank, self.device))
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def _foreign(self) -> list[float]:
        self.oracle.stop("it trains a model of its own")
        return []

    def observe(self, name: str, value: Any) -> None:
        """Note `value` as it is now; what both programs observed under one name has to agree bitwise.

        Tensors of every kind (also sharded ones), containers, and objects by what they hold. A name used again is
        numbered.

        Raises:
            TypeError: `name` is no string, or `value` cannot be copied exactly.
        """
        if not isinstance(name, str):
            raise TypeError(f"observe(name, value): the name has to be a string, not {type(name).__name__}")
        try:
            unique = self._note(name, take(value))
        except Unobservable as error:
            raise TypeError(f"observe({name!r}): {error}") from None
        except RecursionError:
            raise TypeError(f"observe({name!r}): it is nested too deeply") from None
        self.oracle.observed(unique, value)

    def _note(self, name: str, snapshot: Snapshot) -> str:
        names = {known for known, _ in self.observations}
        number = 2
        unique = name
        while unique in names:
            unique, number = f"{name} #{number}", number + 1
        self.observations.append((unique, snapshot))
        return unique


def _is_network(model: nn.Module) -> bool:
    return any(isinstance(module, models.Network) for module in model.modules())


def _full_precision() -> Any:
    from torch.distributed.fsdp import MixedPrecision

    return MixedPrecision()


class StepWatch:
    """Notices optimizer steps that a scenario takes outside `Trial.train`: the oracle cannot follow those."""

    def __init__(self) -> None:
        self.trial: Trial | None = None
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        if self.trial is not None and not self.trial.training:
            self.trial.oracle.stop("it takes optimizer steps of its own")
