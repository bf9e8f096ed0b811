"""The same training in a single process without FSDP, and whether what the ranks hold agrees with it.

Two runs that agree with each other may agree on wrong values. Every optimizer state that a scenario observes, and
every one it trains on, has to be one that the single-process run had too. Only metadata of FSDP is read here: which
piece of which parameter a rank holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from . import model as models
from .kinds import DTensor, ShardedTensor

TOLERANCE = 1e-5

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")

State = dict[str, dict[str, Any]]
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Piece:
    """Where this rank's part of one original parameter lies.

    `holder` is the parameter that the optimizer knows, `offset` where the part starts in it, `start` and `end` which
    elements of the flattened original it is.
    """

    fqn: str
    holder: nn.Parameter
    values: torch.Tensor
    offset: int
    start: int
    end: int

    def of(self, held: torch.Tensor) -> torch.Tensor:
        """The part inside a tensor laid out as the holder is."""
        return held.detach().reshape(-1)[self.offset : self.offset + self.end - self.start]


def pieces(model: nn.Module) -> list[Piece]:
    """Every part of every original parameter of `model` on this rank."""
    found: list[Piece] = []
    managed: set[int] = set()
    for path, module in model.named_modules():
        handle = getattr(module, "_handle", None) if isinstance(module, FullyShardedDataParallel) else None
        if handle is not None:
            flat = handle.flat_param
            managed.add(id(flat))
            managed.update(id(parameter) for parameter in flat._params or ())
            found += _pieces_of(flat, _clean(path), handle._use_orig_params)
    for name, parameter in model.named_parameters():
        if id(parameter) not in managed:
            found.append(Piece(_clean(name), parameter, parameter, 0, 0, parameter.numel()))
    return found


def _pieces_of(flat: Any, path: str, original: bool) -> Iterator[Piece]:
    prefix = f"{path}." if path else ""
    local = getattr(flat, "_local_shard", flat)
    for index, (fqn, where) in enumerate(zip(flat._fqns, flat._shard_param_infos)):
        holder = flat._params[index] if original else flat
        if not where.in_shard:
            yield Piece(prefix + fqn, holder, local[:0], 0, 0, 0)
            continue
        offset, count = where.offset_in_shard, where.numel_in_shard
        start = where.intra_param_start_idx
        values = local.detach()[offset : offset + count]
        yield Piece(prefix + fqn, holder, values, 0 if original else offset, start, start + count)


def _clean(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


class Oracle:
    """What the single-process run has seen so far, for one scenario on one rank."""

    def __init__(self, rank: int, world: int, device: torch.device) -> None:
        self._rank, self._world, self._device = rank, world, device
        self._weights: list[Weights] = []
        self._states: list[State] = [{}]
        self.checked = 0
        self.complaints: list[str] = []
        self.unchecked: str | None = None

    def built(self, plain: nn.Module) -> None:
        """A scenario was given a wrapped copy of `plain`."""
        self._weights.append(_weights_of(plain))

    def stop(self, reason: str) -> None:
        """From here on the single-process run does not follow the scenario."""
        self.unchecked = self.unchecked or reason

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, name: str) -> list[float]:
        """Train a single-process copy from where `model` and `optimizer` are; returns this rank's losses.

        Call it before the ranks train; empty when the run cannot be followed.
        """
        if self.unchecked:
            return []
        parts = pieces(model)
        weights = self._nearest(f"weights before {name}", self._weights, [(p.fqn, p, p.values) for p in parts])
        state = self._nearest_state(optimizer, parts, f"optimizer state before {name}")
        if weights is None or state is None:
            self.stop("the state before training is not one of the single-process run")
            return []
        plain = models.Network().to(self._device)
        with torch.no_grad():
            for name, parameter in plain.named_parameters():
                parameter.copy_(weights[name])
                parameter.requires_grad_(_requires_grad(parts, name))
        twin = _twin_optimizer(optimizer, parts, plain, state)
        losses = self._run(plain, twin, steps)
        self._weights.append(_weights_of(plain))
        self._states.append(_state_of(twin, plain))
        return losses

    def _run(self, plain: nn.Module, twin: torch.optim.Optimizer, steps: range) -> list[float]:
        losses = []
        for step in steps:
            for rank in range(self._world):
                loss = models.loss_of(plain, models.batch(step, rank, self._device))
                if rank == self._rank:
                    losses.append(loss.item())
                torch.autograd.backward(loss / self._world)
            twin.step()
            twin.zero_grad()
        return losses

    def trained(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, mine: list[float], losses: list[float], name: str
    ) -> None:
        """Compare what the ranks reached with the single-process run: `mine` are its losses, `losses` theirs."""
        if not mine:
            return
        worst = max(abs(a - b) for a, b in zip(mine, losses))
        if not worst <= TOLERANCE:
            self.complaints.append(f"a loss of {name} differs by {worst:.1e} from the single-process run")
        self._nearest_state(optimizer, pieces(model), f"optimizer state after {name}")

    def observed(self, name: str, value: Any) -> None:
        """Compare the optimizer state dicts inside an observed value, if their keys are parameter names."""
        if self.unchecked or not self._weights:
            return
        for path, state in _state_dicts(name, value):
            if state and set(state) <= set(self._weights[0]):
                # A known state with other parameters has an entry that is not in the observed one.
                known = [candidate for candidate in self._states if set(candidate) == set(state)]
                self._nearest(path, known, [(fqn, None, entry) for fqn, entry in state.items()])

    def _nearest_state(self, optimizer: torch.optim.Optimizer, parts: list[Piece], what: str) -> State | None:
        held = [(p.fqn, p, optimizer.state.get(p.holder, {})) for p in parts]
        mine = [(fqn, piece, value) for fqn, piece, value in held if piece.end > piece.start]
        state: State | None = self._nearest(what, self._states, mine)
        return state

    def _nearest(self, what: str, known: list[Any], held: Sequence[tuple[str, Piece | None, Any]]) -> Any:
        """The latest known state that agrees with `held`; complains and returns None when there is none."""
        self.checked += 1
        best = float("inf")
        for candidate in reversed(known):
            distance = max((_distance(value, candidate.get(fqn, {}), piece) for fqn, piece, value in held), default=0.0)
            if distance <= TOLERANCE:
                return candidate
            best = min(best, distance)
        nearest = "has other entries than" if best == float("inf") else f"differs by {best:.1e} from"
        self.complaints.append(f"{what} {nearest} every state of the single-process run")
        return None


def _distance(held: Any, known: Any, piece: Piece | None) -> float:
    """The largest absolute difference; infinite when the two do not have the same entries."""
    if isinstance(known, dict):
        if not isinstance(held, dict) or set(held) != set(known):
            return float("inf")
        return max((_distance(held[key], known[key], piece) for key in known), default=0.0)
    if not isinstance(known, torch.Tensor):
        return 0.0 if held == known else float("inf")
    if not isinstance(held, torch.Tensor) and not isinstance(held, ShardedTensor):
        return abs(float(held) - float(known)) if isinstance(held, (int, float)) else float("inf")
    pairs = _local_pairs(held, known, piece)
    if any(one.shape != other.shape for one, other in pairs):
        return float("inf")
    return max((float((one - other).abs().max()) for one, other in pairs if one.numel()), default=0.0)


def _local_pairs(held: Any, known: torch.Tensor, piece: Piece | None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What this rank holds of a tensor, each part beside the same part of the known one, on the CPU in float64."""
    whole = known.detach()
    if piece is not None and whole.dim():
        # The weights of a piece are cut out already, its optimizer state is laid out as the holder.
        part = held.detach().reshape(-1) if held is piece.values else piece.of(held)
        pairs = [(part, whole.reshape(-1)[piece.start : piece.end])]
    elif isinstance(held, ShardedTensor):
        pairs = [(shard.tensor.detach(), _cut(whole, shard.metadata)) for shard in held.local_shards()]
    elif isinstance(held, DTensor):
        pairs = [(held.to_local().detach(), _chunk(whole, held))]
    else:
        pairs = [(held.detach(), whole)]
    return [(one.to("cpu", torch.float64), other.to("cpu", torch.float64)) for one, other in pairs]


def _cut(whole: torch.Tensor, shard: Any) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(shard.shard_offsets, shard.shard_sizes)):
        whole = whole.narrow(dimension, offset, size)
    return whole


def _chunk(whole: torch.Tensor, held: Any) -> torch.Tensor:
    """The part of `whole` that this rank's `DTensor` holds: torch.chunk along each sharded dimension."""
    coordinate = held.device_mesh.get_coordinate()
    for mesh_dimension, placement in enumerate(held.placements):
        if placement.is_shard():
            chunks = whole.chunk(held.device_mesh.size(mesh_dimension), placement.dim)
            mine = coordinate[mesh_dimension]
            whole = chunks[mine] if mine < len(chunks) else whole.narrow(placement.dim, 0, 0)
    return whole


def _state_dicts(path: str, value: Any, above: tuple[int, ...] = ()) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The ``state`` of every optimizer state dict inside containers."""
    if id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, dict):
        if isinstance(value.get("state"), dict) and "param_groups" in value:
            yield path, value["state"]
            return
        for key, part in value.items():
            yield from _state_dicts(f"{path}[{key!r}]" if isinstance(key, (str, int)) else path, part, above)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from _state_dicts(f"{path}[{index}]", part, above)


def _weights_of(plain: nn.Module) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in plain.named_parameters()}


def _state_of(twin: torch.optim.Optimizer, plain: nn.Module) -> State:
    return {
        name: {key: _copy(part) for key, part in twin.state[parameter].items()}
        for name, parameter in plain.named_parameters()
        if parameter in twin.state
    }


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _requires_grad(parts: list[Piece], name: str) -> bool:
    return any(part.fqn == name and part.holder.requires_grad for part in parts)


def _twin_optimizer(
    optimizer: torch.optim.Optimizer, parts: list[Piece], plain: nn.Module, state: State
) -> torch.optim.Optimizer:
    """The same optimizer over the plain parameters, holding `state`."""
    named = dict(plain.named_parameters())
    names: dict[int, list[str]] = {}
    for part in parts:
        names.setdefault(id(part.holder), []).append(part.fqn)
    parameter_groups = []
    for group in optimizer.param_groups:
        own = [named[name] for holder in group["params"] for name in names.get(id(holder), ())]
        parameter_groups.append({**group, "params": own})
    # Some defaults are no parameters of the constructor; the groups carry all of them.
    accepted = inspect.signature(type(optimizer).__init__).parameters
    defaults = {key: value for key, value in optimizer.defaults.items() if key in accepted}
    twin = type(optimizer)(parameter_groups, **defaults)
    for name, entries in state.items():
        twin.state[named[name]] = {key: _copy(part) for key, part in entries.items()}
    return twin
