"""What a program leaves: the models that were trained and their optimizers, put together from all ranks."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from . import gathering
from .journal import Journal
from .names import Flat, Names, names, reshard
from .trees import Node, Trees, is_dtensor

PATIENCE = datetime.timedelta(seconds=120)  # for the other ranks to come to the same place


class Final:
    """The optimizers that took a step, in that order, and the models whose parameters they have.

    They are held until their state is recorded, and then let go.
    """

    def __init__(self, journal: Journal, trees: Trees) -> None:
        self._journal = journal
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._indices: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        self._counts = [0, 0]
        self._optimizers: dict[int, Any] = {}
        self._models: dict[int, nn.Module] = {}
        self._trees = trees
        journal.before_end = self.record

    def number(self, optimizer: Any) -> int | None:
        """The number of an optimizer that took a step since the last record; None for any other."""
        number = self._numbers.get(optimizer)
        return number if number in self._optimizers else None

    def add(self, optimizer: Any) -> None:
        """An optimizer is about to take its first step: the models that it trains are there."""
        number = self._numbers.get(optimizer)
        if number is None:
            number, self._counts[0] = self._counts[0], self._counts[0] + 1
            self._numbers[optimizer] = number
        self._optimizers[number] = optimizer
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in sorted(_trained(held), key=_looks):
            index = self._indices.get(model)
            if index is None:
                index, self._counts[1] = self._counts[1], self._counts[1] + 1
                self._indices[model] = index
            self._models[index] = model

    def record(self) -> None:
        """Record the final state of what was trained since the last time, on all ranks in one order."""
        # Another rank may never come here, and what this one does next waits for it.
        self._journal.event("closing", flush=True)
        state = _State(self._models, self._optimizers, self._trees, self._journal)
        self._models, self._optimizers = {}, {}
        self._journal.guarded("the final state")(state.record)()
        self._journal.flush()


def _trained(held: set[int]) -> list[nn.Module]:
    """The outermost modules that have a parameter which an optimizer holds, or one with a gradient."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module) and "_modules" in vars(found)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    outer = [module for module in modules if id(module) not in inner]
    return [
        module
        for module in outer
        if any(id(parameter) in held or parameter.grad is not None for parameter in module.parameters())
    ]


def _looks(model: nn.Module) -> tuple[Any, ...]:
    """What puts the models of a rank into the order that they have on all others."""
    return type(model).__qualname__, [name for name, _ in model.named_parameters()]


class _State:
    """The final state of some models and optimizers, by their numbers."""

    def __init__(
        self, models: dict[int, nn.Module], optimizers: dict[int, Any], trees: Trees, journal: Journal
    ) -> None:
        self._journal = journal
        self._trees = trees
        self._models = models
        self._optimizers = optimizers
        self._named: dict[int, Names] = {}
        self._owners: dict[int, tuple[str, Flat | None]] = {}
        self._everyone: gathering.Descriptions = {}
        self._together = True

    @torch.no_grad()
    def record(self) -> None:
        """Record all of it; what cannot be put together is left out, and told as a fault."""
        for index, model in self._models.items():
            reshard(model)
            self._named[index] = names(model)
            self._owners.update(self._named[index].owners)
        self._journal.quiet = True
        try:
            self._agree()
            found = [("model", index, self._model(named)) for index, named in self._named.items()]
            found += [("optimizer", number, self._optimizer(number, one)) for number, one in self._optimizers.items()]
        finally:
            self._journal.quiet = False
        for of, index, tree in found:
            self._journal.event("final", of=of, index=index, tree=tree)

    def _agree(self) -> None:
        states = {str(number): self._sharded_states(one) for number, one in self._optimizers.items()}
        own = {"operations": list(self._operations()), "states": states}
        try:
            self._everyone = gathering.exchange(own, PATIENCE)
            gathering.check_order({rank: told["operations"] for rank, told in self._everyone.items()})
        except gathering.Disagreement as told:
            self._together = False
            self._journal.quiet = False
            self._journal.fault("the final state", str(told))
            self._journal.quiet = True

    def _operations(self) -> Iterator[list[Any]]:
        """What this rank puts together with which others, in its order."""
        for index, named in self._named.items():
            for name, part in named.parts.items():
                ranks = _ranks(part)
                if ranks:
                    yield ["model", index, name, ranks]
        for number, optimizer in self._optimizers.items():
            for name, parameter, flat in self._held(optimizer):
                ranks = _ranks(flat or parameter)
                if ranks:
                    yield ["optimizer", number, name, ranks]

    def _held(self, optimizer: Any) -> Iterator[tuple[str, Any, Flat | None]]:
        """Each parameter of an optimizer with its name, and the flat parameter that it is a part of."""
        for number, group in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                unknown = (f"group {number}, parameter {place}", None)
                name, flat = self._owners.get(id(parameter), unknown)
                yield name, parameter, flat

    def _sharded_states(self, optimizer: Any) -> dict[str, dict[str, Any]]:
        """What this rank has of sharded states: the types and sizes of parts, and what is no part as it is."""
        found: dict[str, dict[str, Any]] = {}
        for name, parameter, flat in self._held(optimizer):
            if flat is not None:
                parts, rest = found.setdefault(name, {"parts": {}, "rest": {}}).values()
                for key, value in optimizer.state.get(parameter, {}).items():
                    if _is_part(value, parameter, flat):
                        parts[str(key)] = [str(value.dtype).removeprefix("torch."), value.numel()]
                    else:
                        rest[str(key)] = self._trees.node(value)
        return found

    def _model(self, named: Names) -> Node:
        found: list[list[Any]] = []
        for name, part in named.parts.items():
            if isinstance(part, Flat):
                shard = getattr(part.parameter, "_local_shard", part.parameter).detach()
                flat = self._flat(shard, part) if self._together or not part.is_sharded else None
                parts = part.split(flat) if flat is not None else {}
                found += [[own, self._trees.tensor(tensor)] for own, tensor in parts.items()]
            elif not is_dtensor(part):
                found.append([name, self._trees.tensor(part)])
            elif self._together:
                found.append([name, self._trees.tensor(gathering.full(part.detach()))])
        return {"t": "dict", "k": found}

    def _flat(self, shard: torch.Tensor, flat: Flat) -> torch.Tensor:
        if not flat.is_sharded:
            return shard.reshape(-1)
        group = flat.handle.process_group
        sizes = [shard.numel()] * len(gathering.ranks_of(group))
        return gathering.whole(shard, sizes, group, flat.handle.device)

    def _optimizer(self, number: int, optimizer: Any) -> Node:
        states: list[list[Any]] = []
        for name, parameter, flat in self._held(optimizer):
            state = {str(key): value for key, value in optimizer.state.get(parameter, {}).items()}
            if flat is None:
                states.append([name, {"t": "dict", "k": [[key, self._plain(value)] for key, value in state.items()]}])
            else:
                states += self._flat_state(str(number), name, parameter, flat, state)
        named = {id(parameter): _names_in(name, parameter, flat) for name, parameter, flat in self._held(optimizer)}
        groups = [
            {**group, "params": sorted(own for parameter in group["params"] for own in named[id(parameter)])}
            for group in optimizer.param_groups
        ]
        return {"t": "dict", "k": [["state", {"t": "dict", "k": states}], ["param_groups", self._trees.node(groups)]]}

    def _plain(self, value: Any) -> Node:
        if is_dtensor(value) and self._together:
            return self._trees.tensor(gathering.full(value.detach()))
        return self._trees.node(value)

    def _flat_state(
        self, number: str, name: str, parameter: Any, flat: Flat, state: dict[str, Any]
    ) -> Iterator[list[Any]]:
        """The state of a flat parameter, or of a part of one, by the names of the parameters in it."""
        members = _names_in(name, parameter, flat)
        # A rank that has nothing of a parameter has no state for it, and gives nothing.
        group = flat.handle.process_group
        ranks = gathering.ranks_of(group) if flat.is_sharded else [gathering.this_rank()]
        told = [self._everyone[rank]["states"][number][name] for rank in ranks] if self._together else []
        rest = {key: node for states in reversed(told) for key, node in states["rest"].items()}
        found = {member: [[key, node] for key, node in rest.items()] for member in members}
        for key in sorted({key for states in told for key in states["parts"]}):
            kinds = [states["parts"].get(key) for states in told]
            dtype = getattr(torch, next(kind[0] for kind in kinds if kind))
            piece = state[key] if key in state else torch.empty(0, dtype=dtype)
            sizes = [kind[1] if kind else 0 for kind in kinds]
            tensor = gathering.whole(piece, sizes, group, flat.handle.device)
            if parameter is flat.parameter:
                parts = flat.split(tensor)
            else:
                parts = {name: tensor.view(flat.parameter._shapes[flat.names.index(name)])}
            for member, part in parts.items():
                found[member].append([key, self._trees.tensor(part)])
        for member, entries in found.items():
            yield [member, {"t": "dict", "k": entries}]


def _names_in(name: str, parameter: Any, flat: Flat | None) -> list[str]:
    return list(flat.names) if flat is not None and parameter is flat.parameter else [name]


def _is_part(value: Any, parameter: Any, flat: Flat | None) -> bool:
    """Whether a state belongs to a parameter number by number, and is kept in parts as it is."""
    if flat is None or not isinstance(value, torch.Tensor) or not value.dim():
        return False
    own = getattr(parameter, "_local_shard", parameter) if parameter is flat.parameter else parameter
    return bool(value.numel() == own.numel())


def _ranks(part: Any) -> list[int] | None:
    """The ranks that have parts of it; None if this one has all."""
    if isinstance(part, Flat):
        return gathering.ranks_of(part.handle.process_group) if part.is_sharded else None
    return gathering.ranks_of_mesh(part) if is_dtensor(part) else None
