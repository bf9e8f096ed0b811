"""Values as trees of names, shapes and digests: nothing in them holds the values themselves."""

from __future__ import annotations

import ctypes
import enum
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

Node = dict[str, Any]
DEPTH = 40  # levels of a tree; what is deeper is told by its type
SHORT = 200  # characters of a value's text
PIECE = 1 << 26  # bytes that are digested at once
_SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN = (enum.Enum, torch.dtype, torch.device, torch.layout, torch.Size, slice, range, type)


class Trees:
    """Makes trees, and stores the bytes of tensors in a folder until `room` bytes are used."""

    def __init__(self, folder: str, room: int) -> None:
        self._folder = folder
        self._room = room

    def node(self, value: Any, above: tuple[int, ...] = ()) -> Node:
        """The tree of a value."""
        if _is("torch.distributed._shard.sharded_tensor", "ShardedTensor", value):
            return self._sharded(value)
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is None or isinstance(value, (*_SCALARS, *_PLAIN)):
            return _value(value, repr(value))
        if id(value) in above or len(above) >= DEPTH:
            return _value(value, f"<{type(value).__name__}>")
        above = (*above, id(value))
        if isinstance(value, Mapping):
            return self._named("dict", ((str(key), part) for key, part in value.items()), above)
        if isinstance(value, (list, tuple)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return self._named(kind, ((str(number), part) for number, part in enumerate(value)), above)
        if isinstance(value, (set, frozenset)):
            return _value(value, repr(sorted(map(repr, value))))
        return self._object(value, above)

    def _named(self, kind: str, parts: Iterable[tuple[str, Any]], above: tuple[int, ...]) -> Node:
        return {"t": kind, "k": [[name, self.node(part, above)] for name, part in parts]}

    def _object(self, value: Any, above: tuple[int, ...]) -> Node:
        if isinstance(value, torch.nn.Module):
            # Not its state_dict(), which may gather what is sharded, or do anything else.
            return self._named("dict", [*value.named_parameters(), *value.named_buffers()], above)
        if isinstance(value, torch.optim.Optimizer):
            parts = {"state": list(value.state.values()), "param_groups": value.param_groups}
            return self._named("dict", parts.items(), above)
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            data = value.tobytes()
            about = {"dtype": str(value.dtype), "shape": list(value.shape), "device": "cpu", "kind": "ndarray"}
            return {"t": "tensor", **about, "digest": self._keep(data, len(data)), "numel": int(value.size)}
        text = repr(value)
        if " at 0x" not in text:
            return _value(value, text)
        inside = getattr(value, "__dict__", None)
        if inside:
            return self._named("dict", ((str(name), part) for name, part in inside.items()), above)
        return _value(value, f"<{type(value).__name__}>")

    def tensor(self, value: Any) -> Node:
        """The node of a tensor, whatever its kind; a sharded one is told by the pieces of this rank."""
        value = value.detach()
        if is_dtensor(value):
            return self._dtensor(value)
        if type(value).__name__ == "AsyncCollectiveTensor":
            return self.tensor(value.wait())
        about = {
            "t": "tensor",
            "dtype": _dtype(value),
            "shape": [] if value.is_nested else list(value.shape),
            "device": str(value.device),
            "kind": "Tensor",
            "numel": value.numel(),
        }
        if value.device.type == "meta":
            return {**about, "digest": "meta"}
        parts = _parts(value)
        if parts is not None:
            return {"t": "dict", "k": [[name, self.tensor(part)] for name, part in parts.items()]}
        return {**about, **self.digest(value)}

    def digest(self, value: torch.Tensor) -> Node:
        """The digest of the bytes of a plain tensor, and some figures on it."""
        # Lazily conjugated or negated numbers lie in memory as they were before.
        here = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().to("cpu").contiguous()
        amount = here.numel() * here.element_size()
        data = (ctypes.c_char * amount).from_address(here.data_ptr()) if amount else b""
        return {"digest": self._keep(data, amount), "stats": _figures(here)}

    def _keep(self, data: Any, amount: int) -> str:
        view = memoryview(data).cast("B") if amount else memoryview(b"")
        digest = hashlib.sha256()
        for start in range(0, amount, PIECE):
            digest.update(view[start : start + PIECE])
        name = digest.hexdigest()
        if amount <= self._room:
            path = os.path.join(self._folder, f"{name}.bin")
            if not os.path.exists(path):
                self._room -= amount
                os.makedirs(self._folder, exist_ok=True)
                # Ranks may write the same bytes at once.
                with open(f"{path}.{os.getpid()}", "wb") as file:
                    file.write(view)
                os.replace(file.name, path)
        return name

    def _pieces(self, value: Any, kind: str, pieces: Iterator[tuple[Any, torch.Tensor]], **more: Any) -> Node:
        shards = [
            {"offset": [int(number) for number in offset], "shape": list(piece.shape), **self.digest(piece)}
            for offset, piece in pieces
        ]
        about = {"dtype": _dtype(value), "shape": list(value.size()), "kind": kind, "shards": shards}
        return {"t": "tensor", "device": more.pop("device"), "numel": value.size().numel(), **about, **more}

    def _dtensor(self, value: Any) -> Node:
        local = value.to_local()
        if type(local).__name__ == "AsyncCollectiveTensor":
            local = local.wait()
        offset = _offset(value)
        pieces = iter([(offset, local)] if local.numel() or not value.numel() else [])
        placements = [str(placement) for placement in value.placements]
        return self._pieces(value, "DTensor", pieces, device=str(local.device), placements=placements)

    def _sharded(self, value: Any) -> Node:
        shards = value.local_shards()
        device = str(shards[0].tensor.device) if shards else "cpu"
        pieces = ((shard.metadata.shard_offsets, shard.tensor.detach()) for shard in shards)
        return self._pieces(value, "ShardedTensor", pieces, device=device)


def _is(module: str, name: str, value: Any) -> bool:
    """Whether a value is of a class of torch, whose module is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_dtensor(value: Any) -> bool:
    """Whether a value is a DTensor."""
    return _is("torch.distributed.tensor", "DTensor", value) or _is("torch.distributed._tensor", "DTensor", value)


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _value(value: Any, text: str) -> Node:
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    short = text if len(text) <= SHORT else text[: SHORT - 3] + "..."
    return {"t": "value", "repr": short, "type": type(value).__name__, "digest": digest}


def _parts(value: Any) -> dict[str, Any] | None:
    """The plain tensors that a special one consists of."""
    if value.is_nested:
        return {str(number): part for number, part in enumerate(value.unbind())}
    if value.layout is torch.sparse_coo:
        whole = value.coalesce()
        return {"indices": whole.indices(), "values": whole.values()}
    if value.layout is not torch.strided:
        return {"dense": value.to_dense()}
    if value.is_quantized:
        return {"values": value.int_repr(), "scale": torch.as_tensor(value.q_scale())}
    if hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return {name: getattr(value, name) for name in names}
    return None


def _figures(value: torch.Tensor) -> list[float]:
    """The least, the largest and the norm of a tensor's numbers."""
    if not value.numel() or not (value.is_floating_point() or value.dtype in (torch.int32, torch.int64)):
        return []
    numbers = value.float() if value.element_size() < 4 or not value.is_floating_point() else value
    least, largest = torch.aminmax(numbers)
    return [float(least), float(largest), float(torch.linalg.vector_norm(numbers))]


def _offset(value: Any) -> list[int]:
    """Where in a DTensor the part of this rank begins."""
    utils = sys.modules.get("torch.distributed.tensor._utils") or sys.modules["torch.distributed._tensor._utils"]
    _, offset = utils.compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return [int(number) for number in offset]
