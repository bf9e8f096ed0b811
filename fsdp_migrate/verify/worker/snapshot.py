"""What a scenario observed, frozen at that moment: nothing in a snapshot shares memory with the program."""

from __future__ import annotations

import collections.abc
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .kinds import DTensor, ShardedTensor, c10d

PROGRAM = "scenario_"  # how the names of modules start that are programs, not libraries

_SCALARS = (bool, int, float, complex, str, bytes)
_VIEWS = (collections.abc.KeysView, collections.abc.ItemsView, collections.abc.ValuesView)
_LINKS = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class Unobservable(TypeError):
    """A value that cannot be compared bit by bit; the message says what to observe instead."""


@dataclass(frozen=True)
class Plain:
    """A Python value: its type and an exact text."""

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
    requires_grad: bool = False


@dataclass(frozen=True)
class Items:
    """Named parts in order: a dict, an object, or the pieces of a sharded tensor."""

    kind: str
    entries: tuple[tuple[str, Snapshot], ...]


@dataclass(frozen=True)
class Row:
    """Unnamed parts in order: a list or a tuple."""

    kind: str
    entries: tuple[Snapshot, ...]


Snapshot = Plain | Array | Items | Row


def take(value: Any, above: tuple[int, ...] = ()) -> Snapshot:
    """Freeze `value` with all that it holds; `above` are the identities of what holds it.

    Raises:
        Unobservable: an exact copy cannot be taken, of a generator for example.
    """
    kind = type(value).__name__
    if value is None or isinstance(value, _SCALARS):
        return Plain(kind, _scalar(value))
    if isinstance(value, (bytearray, memoryview)):
        return Plain(kind, repr(bytes(value)))
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, _LINKS):
        return Plain(kind, _link(value))
    if id(value) in above:
        return Plain("cycle", f"what is {len(above) - above.index(id(value))} levels up")
    above = (*above, id(value))
    if isinstance(value, dict):
        return Items(kind, _entries(value, above))
    if isinstance(value, (list, tuple, *_VIEWS)):
        return Row(kind, tuple(take(part, above) for part in value))
    if isinstance(value, collections.abc.Set):
        # A set has no order; that of the texts does for parts that have equal ones.
        return Row(kind, tuple(sorted((take(part, above) for part in value), key=repr)))
    return _object(value, kind, above)


def _scalar(value: Any) -> str:
    base = next((base for base in _SCALARS if isinstance(value, base)), object)
    return base.__repr__(value)


def _link(value: Any) -> str:
    """The name of what is found under a name.

    Raises:
        Unobservable: a function that the program made: two with one name may do different things.
    """
    if isinstance(value, types.ModuleType):
        return value.__name__
    module, name = str(value.__module__), value.__qualname__
    own = module.startswith(PROGRAM)
    if isinstance(value, types.FunctionType) and (own or "<" in name):
        raise Unobservable(f"functions of the program ({name}) cannot be compared; observe what they return")
    return name if own else f"{module}.{name}"


def _entries(value: dict[Any, Any], above: tuple[int, ...]) -> tuple[tuple[str, Snapshot], ...]:
    found: list[tuple[str, Snapshot]] = []
    for number, (key, part) in enumerate(value.items()):
        text = _key(key)
        if text is None:
            # A key without a text of its own is compared like a value.
            found.append((f"{type(key).__name__} {number}", Row("entry", (take(key, above), take(part, above)))))
        else:
            found.append((text, take(part, above)))
    return tuple(found)


def _key(key: Any) -> str | None:
    if key is None or isinstance(key, _SCALARS):
        return _scalar(key)
    if type(key) is tuple:
        parts = [_key(part) for part in key]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    return None


def _object(value: Any, kind: str, above: tuple[int, ...]) -> Snapshot:
    """Anything else, taken apart the way that copying and pickling it does."""
    if isinstance(value, nn.Module):
        return _module(value, kind)
    if isinstance(value, torch.optim.Optimizer):
        parameters = [parameter for group in value.param_groups for parameter in group["params"]]
        return Items(kind, (("state", take(optimizer_state(value), above)), ("parameters", take(parameters))))
    if isinstance(value, c10d.ProcessGroup):
        return Row(kind, tuple(take(rank) for rank in c10d.get_process_group_ranks(value)))
    if kind == "ndarray" and (array := _ndarray(value)):
        return array
    try:
        reduced = value.__reduce_ex__(2)
    except Exception as error:
        raise Unobservable(f"a {kind} cannot be compared ({error}); observe what it holds") from None
    if isinstance(reduced, str):
        return Plain(kind, reduced)
    return _reduced(kind, (*reduced, None, None, None)[:5], above)


def _reduced(kind: str, reduced: tuple[Any, ...], above: tuple[int, ...]) -> Snapshot:
    """What `object.__reduce_ex__` returned: a function and its arguments, the state, items and pairs."""
    made, arguments, state, items, pairs = reduced
    if state is items is pairs is None and all(_key(part) is not None for part in arguments):
        return Plain(kind, f"{_link(made)}({', '.join(str(_key(part)) for part in arguments)})")
    parts: list[tuple[str, Snapshot]] = []
    if items is not None:
        parts.append(("items", Row("list", tuple(take(part, above) for part in items))))
    if pairs is not None:
        parts += _entries(dict(pairs), above)
    if state is not None:
        parts += _entries(state, above) if type(state) is dict else [("state", take(state, above))]
    made_of = Row("tuple", (take(made), *(take(part, above) for part in arguments)))
    return Items(kind, (*parts, ("made of", made_of)))


def _ndarray(value: Any) -> Array | None:
    """A NumPy array, if torch has its type of number."""
    try:
        data = torch.from_numpy(sys.modules["numpy"].array(value, order="C"))
    except TypeError:
        return None
    return Array("ndarray", str(value.dtype), tuple(value.shape), "cpu", data)


def _module(value: nn.Module, kind: str) -> Items:
    return Items(
        kind,
        (
            ("parameters", take(dict(value.named_parameters()))),
            ("buffers", take(dict(value.named_buffers()))),
            ("modules", take({name: (type(part), part.training) for name, part in value.named_modules()})),
        ),
    )


def _tensor(value: Any) -> Snapshot:
    kind = type(value).__name__
    if isinstance(value, DTensor):
        return _dtensor(value)
    if isinstance(value, ShardedTensor):
        return _sharded_tensor(value)
    if kind == "AsyncCollectiveTensor":
        return _tensor(value.wait())
    if value.is_nested:
        return _parts(value, nested=list(value.unbind()))
    if value.layout is torch.sparse_coo:
        return _parts(value, indices=value._indices(), values=value._values())
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return _parts(value, rows=value.crow_indices(), columns=value.col_indices(), values=value.values())
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return _parts(value, columns=value.ccol_indices(), rows=value.row_indices(), values=value.values())
    if value.is_quantized:
        return _parts(value, scheme=_quantization(value), values=value.int_repr())
    if hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return _parts(value, **{name: getattr(value, name) for name in names})
    data = torch.empty(0)
    if value.device.type != "meta":
        # Lazily conjugated or negated numbers lie in memory as they were before.
        bare = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        data = bare.to("cpu", copy=True).contiguous()
    return Array(kind, str(value.dtype), tuple(value.shape), value.device.type, data, value.requires_grad)


def _parts(value: Any, **parts: Any) -> Items:
    shape = () if value.is_nested else tuple(value.shape)
    about = {"dtype": str(value.dtype), "layout": str(value.layout), "shape": shape, **parts}
    return Items(type(value).__name__, tuple((name, take(part)) for name, part in about.items()))


def _quantization(value: torch.Tensor) -> tuple[Any, ...]:
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return str(value.qscheme()), value.q_scale(), value.q_zero_point()
    scales, zeros = value.q_per_channel_scales(), value.q_per_channel_zero_points()
    return str(value.qscheme()), scales, zeros, value.q_per_channel_axis()


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
