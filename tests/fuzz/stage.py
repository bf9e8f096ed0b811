"""Programs with optimizer state, performed on a torch.distributed.fsdp that only writes down what it is asked for.

Its settings follow torch's (2.1 to 2.15, fully_sharded_data_parallel.py): the legacy methods know no state-dict type,
the current ones obey it, a `with` does not restore it after an exception, and a module has one for all its parts.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any
from unittest import mock

_PLACE = "torch.distributed.fsdp"
# What only reads: a rewrite may ask for it in another order within one statement.
_READING = ("saved", "converted", "weights")


@dataclass(frozen=True)
class Situation:
    """What a program meets: its rank, a flag, whether other types are set on the models, and which effect fails."""

    rank: int
    flag: bool
    types_set: bool
    failing: int


@dataclass(frozen=True)
class Performance:
    """What a program did: effects in order, what it read, and how it ended."""

    effects: tuple[Any, ...]
    readings: tuple[str, ...]
    end: str


class StateDictType(Enum):
    FULL_STATE_DICT = "full"
    SHARDED_STATE_DICT = "sharded"


@dataclass(frozen=True)
class FullOptimStateDictConfig:
    offload_to_cpu: bool = True
    rank0_only: bool = False


@dataclass(frozen=True)
class FullStateDictConfig:
    offload_to_cpu: bool = False
    rank0_only: bool = False


_UNSET = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())


class State(dict[str, Any]):
    """An optimizer state, with where it comes from and the optimizer that it was converted for."""

    def __init__(self, origin: tuple[Any, ...], optim: Any = None) -> None:
        super().__init__(state=origin, param_groups=[])
        self.origin, self.optim = origin, optim

    def __repr__(self) -> str:
        return repr(self.origin)


class Optimizer:
    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name, self.steps = stage, name, 0

    def __repr__(self) -> str:
        return f"{self.name}@{self.steps}"

    def load_state_dict(self, state: Any) -> None:
        other = state.optim if isinstance(state, State) else None
        self.stage.log.append(("loaded", self.name, repr(state), other is None or other is self))
        self.steps += 1

    def step(self) -> None:
        self.stage.log.append(("step", self.name))
        self.steps += 1


class Stage:
    """One performance: the log, and torch as the program sees it."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.log: list[tuple[Any, ...]] = []
        self.effects = 0
        self.fsdp = _fsdp(self)

    def effect(self, value: Any) -> Any:
        """Something that the order of evaluation shows in; one of them may fail."""
        self.effects += 1
        self.log.append(("effect", repr(value)))
        if self.effects == self.situation.failing:
            raise ValueError("it failed")
        return value

    def modules(self) -> Mapping[str, ModuleType]:
        """The modules that a program imports."""
        fsdp = _module(
            _PLACE,
            FullyShardedDataParallel=self.fsdp,
            StateDictType=StateDictType,
            FullStateDictConfig=FullStateDictConfig,
            FullOptimStateDictConfig=FullOptimStateDictConfig,
        )
        distributed = _module("torch.distributed", fsdp=fsdp, get_rank=lambda: self.situation.rank)
        torch = _module("torch", distributed=distributed, no_grad=contextlib.nullcontext, save=self._save)
        return {one.__name__: one for one in (torch, distributed, fsdp)}

    def _save(self, value: Any, _: str) -> None:
        self.log.append(("written", repr(value)))


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(members, __path__=[])
    return module


def _fsdp(stage: Stage) -> type:
    class FullyShardedDataParallel:
        def __init__(self, name: str, *parts: Any) -> None:
            self.name, self.parts, self.type = name, parts, _UNSET
            self.sub = parts[0] if parts else self

        def __repr__(self) -> str:
            return self.name

        def modules(self) -> Iterator[Any]:
            yield self
            for part in self.parts:
                yield from part.modules()

        def parameters(self) -> list[str]:
            return [self.name]

        def state_dict(self) -> dict[str, str]:
            stage.log.append(("weights", [(one.name, one.type) for one in self.modules()]))
            return {"weights": self.name}

        @staticmethod
        def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):  # type: ignore[no-untyped-def]
            before = _only_type(module)
            model, optim = state_dict_config or _UNSET[1], optim_state_dict_config or _UNSET[2]
            for one in module.modules():
                one.type = (state_dict_type, model, optim)
            return before

        @staticmethod
        @contextlib.contextmanager
        def state_dict_type(module, *arguments, **keywords):  # type: ignore[no-untyped-def]
            before = FullyShardedDataParallel.set_state_dict_type(module, *arguments, **keywords)
            yield
            FullyShardedDataParallel.set_state_dict_type(module, *before)

        @staticmethod
        def optim_state_dict(model, optim, optim_state_dict=None, group=None):  # type: ignore[no-untyped-def]
            return saved(model, optim, _only_type(model), group)

        @staticmethod
        def optim_state_dict_to_load(model, optim, optim_state_dict, group=None):  # type: ignore[no-untyped-def]
            return converted(optim_state_dict, model, _only_type(model), optim, group)

        @staticmethod
        def full_optim_state_dict(model, optim, optim_input=None, rank0_only=True, group=None):  # type: ignore[no-untyped-def]
            return saved(model, optim, _full(rank0_only), group)

        @staticmethod
        def sharded_optim_state_dict(model, optim, group=None):  # type: ignore[no-untyped-def]
            return saved(model, optim, _SHARDED, group)

        @staticmethod
        def shard_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None):  # type: ignore[no-untyped-def]
            return converted(full_optim_state_dict, model, _full(False), optim)

        @staticmethod
        def scatter_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None, group=None):  # type: ignore[no-untyped-def]
            return converted(full_optim_state_dict, model, _full(True), optim, group)

        @staticmethod
        def flatten_sharded_optim_state_dict(sharded_optim_state_dict, model, optim):  # type: ignore[no-untyped-def]
            return converted(sharded_optim_state_dict, model, _SHARDED, optim)

    def saved(model: Any, optim: Any, kind: tuple[Any, ...], group: Any) -> State:
        stage.log.append(("saved", model.name, repr(optim), *_asked(kind), group))
        return State(stage.log[-1])

    def converted(state: Any, model: Any, kind: tuple[Any, ...], optim: Any, group: Any = None) -> State:
        stage.log.append(("converted", repr(state), model.name, *_asked(kind), group))
        return State(stage.log[-1], optim)

    return FullyShardedDataParallel


def _full(rank0_only: Any) -> tuple[Any, ...]:
    return (StateDictType.FULL_STATE_DICT, None, FullOptimStateDictConfig(True, rank0_only))


_SHARDED = (StateDictType.SHARDED_STATE_DICT, None, FullOptimStateDictConfig())


def _asked(kind: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a type and an optimizer config come to; under a sharded type only offloading counts."""
    type_, _, config = kind
    return (type_.value, config.offload_to_cpu, type_ is StateDictType.FULL_STATE_DICT and bool(config.rank0_only))


def _only_type(module: Any) -> tuple[Any, ...]:
    types = [one.type for one in module.modules()]
    if any(one != types[0] for one in types):
        raise AssertionError("all FSDP modules should have the same state-dict type")
    return types[0]  # type: ignore[no-any-return]


def perform(text: str, situation: Situation) -> Performance:
    """What the function `run` of the class `Trainer` in a text does in a situation."""
    stage = Stage(situation)
    models = {name: stage.fsdp(name, stage.fsdp(f"{name}.sub")) for name in ("m", "n", "own")}
    if situation.types_set:
        config = FullOptimStateDictConfig(rank0_only=True)
        stage.fsdp.set_state_dict_type(models["m"], StateDictType.FULL_STATE_DICT, None, config)  # type: ignore[attr-defined]
        stage.fsdp.set_state_dict_type(models["own"], StateDictType.SHARDED_STATE_DICT)  # type: ignore[attr-defined]
    o, q, own = (Optimizer(stage, name) for name in ("o", "q", "own"))
    given = {"effect": stage.effect, "rank": situation.rank, "flag": situation.flag, "__name__": "program"}
    with mock.patch.dict(sys.modules, stage.modules()):
        exec(compile(text, "program", "exec"), given)
        trainer = given["Trainer"]()  # type: ignore[operator]
        trainer.m, trainer.o, trainer.opts, trainer.kept = models["own"], own, {"q": q}, []
        try:
            end = repr(trainer.run(models["m"], models["n"], o, q, {"full": 1}))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            end = f"{type(error).__name__} {error}"
    types = [one.type for model in models.values() for one in model.modules()]
    end = f"{end} {trainer.kept} {trainer.m} {trainer.o} {types}"
    effects = tuple(entry for entry in stage.log if entry[0] not in _READING)
    failed = 0 < situation.failing <= stage.effects
    readings = () if failed else tuple(sorted(repr(entry) for entry in stage.log if entry[0] in _READING))
    return Performance(effects, readings, end)
