"""The parameters of a model by fully qualified name, whatever wraps the model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


@dataclass(frozen=True)
class Flat:
    """A flat parameter of FSDP1: the names of the parameters in it, in their order, and its handle."""

    handle: Any
    names: tuple[str, ...]

    @property
    def parameter(self) -> Any:
        """The flat parameter itself, which has the local shard."""
        return self.handle.flat_param

    @property
    def is_sharded(self) -> bool:
        """Whether a rank has a part of it only."""
        return bool(self.handle.uses_sharded_strategy)

    def split(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters in the whole of it, without the padding in between and at its end."""
        sizes = self.parameter._numels_with_padding
        padding = self.parameter._is_padding_mask
        pieces = torch.split(flat[: sum(sizes)], list(sizes))
        parts = (piece for piece, filler in zip(pieces, padding) if not filler)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.parameter._shapes)}


@dataclass(frozen=True)
class Names:
    """What a model consists of.

    `parts` are its parameters and persistent buffers by name, flat parameters under the first name in them. `owners`
    has the name of each parameter that an optimizer may hold, by its identity, and the flat parameter that it is in.
    """

    parts: dict[str, torch.Tensor | Flat]
    owners: dict[int, tuple[str, Flat | None]]


def names(model: nn.Module) -> Names:
    """Name everything in `model`."""
    found = Names({}, {})
    flats = {id(module): flat for prefix, module in _modules(model, "") if (flat := _flat(prefix, module)) is not None}
    for flat in flats.values():
        found.owners[id(flat.parameter)] = (flat.names[0], flat)
        for name, parameter in zip(flat.names, flat.parameter._params or ()):
            found.owners[id(parameter)] = (name, flat)
        for shared in flat.parameter._shared_params or ():
            found.owners.setdefault(id(shared), (flat.names[0], flat))
    for prefix, module in _modules(model, ""):
        if id(module) in flats:
            found.parts[flats[id(module)].names[0]] = flats[id(module)]
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in found.owners:
                found.owners[id(parameter)] = (prefix + name, None)
                found.parts[prefix + name] = parameter
        transient = module._non_persistent_buffers_set
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in transient:
                found.parts[prefix + name] = buffer
    return found


def _modules(module: nn.Module, prefix: str, seen: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    seen = set() if seen is None else seen
    if id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None:
            wraps = name in _WRAPPED or (name == "module" and isinstance(module, _data_parallel()))
            yield from _modules(child, prefix if wraps else f"{prefix}{name}.", seen)


def _data_parallel() -> tuple[type, ...]:
    return (nn.parallel.DataParallel, nn.parallel.DistributedDataParallel)


def _flat(prefix: str, module: nn.Module) -> Flat | None:
    """The flat parameter that an FSDP1 module manages."""
    handle = module.__dict__.get("_handle")
    parameter: Any = getattr(handle, "flat_param", None)
    if not hasattr(parameter, "_fqns"):
        return None
    return Flat(handle, tuple(prefix + _without_wrappers(name) for name in parameter._fqns))


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def reshard(model: nn.Module) -> None:
    """Have the modules of FSDP2 hold their shards, which those of the optimizer are, where they hold the whole now."""
    kind: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules():
        if isinstance(module, kind):
            module.reshard()
