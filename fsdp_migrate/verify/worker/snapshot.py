"""What a scenario observed, frozen at that moment: nothing in a snapshot shares memory with the program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from .kinds import DTensor, ShardedTensor

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Plain:
    """A Python value: its type and its `repr` (without memory addresses)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Array:
    """One tensor's memory on this rank; `data` is a copy on the CPU."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    data: torch.Tensor


@dataclass(frozen=True)
class Items:
    """Named parts in order: a dict, or the pieces of a sharded tensor. Keys are `repr`s."""

    kind: str
    entries: tuple[tuple[str, Snapshot], ...]


@dataclass(frozen=True)
class Row:
    """Unnamed parts in order: a list or a tuple."""

    kind: str
    entries: tuple[Snapshot, ...]


Snapshot = Plain | Array | Items | Row


def take(value: Any) -> Snapshot:
    """Freeze `value`: containers, tensors of every kind, and anything with a `repr`."""
    kind = type(value).__name__
    if isinstance(value, DTensor):
        return _dtensor(value)
    if isinstance(value, ShardedTensor):
        return _sharded_tensor(value)
    if isinstance(value, torch.Tensor):
        data = value.detach().to("cpu", copy=True).contiguous()
        return Array(kind, str(value.dtype), tuple(value.shape), value.device.type, data)
    if isinstance(value, dict):
        return Items(kind, tuple((repr(key), take(part)) for key, part in value.items()))
    if isinstance(value, (list, tuple)):
        return Row(kind, tuple(take(part) for part in value))
    if isinstance(value, (set, frozenset)):
        return Row(kind, tuple(take(part) for part in sorted(value, key=repr)))
    return Plain(kind, _ADDRESS.sub("", repr(value)))


def _dtensor(value: Any) -> Items:
    mesh = value.device_mesh
    return Items(
        "DTensor",
        (
            ("shape", take(tuple(value.shape))),
            ("placements", Plain("tuple", str(value.placements))),
            ("mesh", Plain("tuple", str(tuple(mesh.mesh.shape)))),
            ("local", take(value.to_local())),
        ),
    )


def _sharded_tensor(value: Any) -> Items:
    layout = [
        (shard.shard_offsets, shard.shard_sizes, str(shard.placement)) for shard in value.metadata().shards_metadata
    ]
    local = [(shard.metadata.shard_offsets, shard.metadata.shard_sizes, shard.tensor) for shard in value.local_shards()]
    return Items(
        "ShardedTensor",
        (("shape", take(tuple(value.size()))), ("layout", take(layout)), ("local", take(local))),
    )


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The live state in the order of the parameters, whose identities mean nothing outside the process."""
    return {
        "state": [
            dict(optimizer.state.get(parameter, {}))
            for group in optimizer.param_groups
            for parameter in group["params"]
        ],
        "param_groups": [{key: part for key, part in g.items() if key != "params"} for g in optimizer.param_groups],
    }
