"""The parts of a checkpoint: models and optimizers, and how each is laid out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fsdp_migrate.checkpoint.contents import Contents, Format, Path, Tensor, Written, tensors
from fsdp_migrate.checkpoint.names import prefixes

DECOUPLED = "decoupled_weight_decay"
"""What Adam's and AdamW's parameter groups have since torch 2.7, which dcp.load asks for."""
_ADAM = {"betas", "eps", "weight_decay", "amsgrad"}
_FLAT = re.compile(r"(^|\.)_?flat_param(_\d+)?$")


class Kind(Enum):
    """What a part is."""

    MODEL = "model"
    OPTIMIZER = "optimizer"


class Layout(Enum):
    """Where the numbers of a tensor are."""

    FULL = "full"
    SHARDED = "sharded"
    LOCAL = "local"  # the flat parameters of one rank, or what lies beside them


class Keys(Enum):
    """What the state of an optimizer is found by."""

    NAME = "name"
    NUMBER = "number"
    FLATTENED = "name, flattened"  # flatten_optimizer_state_dict=True


@dataclass(frozen=True)
class Part:
    """A model or an optimizer in a checkpoint; `names` are those of its parameters as they stand there.

    `shared` are the entries that are one tensor. `undecoupled`: groups of Adam without what torch 2.7 added.
    """

    path: Path
    kind: Kind
    layout: Layout
    names: tuple[str, ...]
    tensors: int
    nbytes: int
    keys: Keys | None = None
    shared: tuple[tuple[str, ...], ...] = ()
    undecoupled: bool = False
    written: tuple[Written, ...] = ()
    prefixes: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The part as users call it."""
        return ".".join(map(str, self.path)) or "(the whole)"


def parts(contents: Contents) -> Iterator[Part]:
    """The parts of a checkpoint, in their order."""
    seen: set[int] = set()
    waiting: list[tuple[Path, Any]] = [((), contents.tree)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, (dict, list, tuple)) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict) and (found := _part(path, node, contents.format)):
            yield found
            if found.kind is Kind.OPTIMIZER:
                continue
        below = node.items() if isinstance(node, dict) else enumerate(node)
        waiting += reversed([((*path, key), inner) for key, inner in below])


def _part(path: Path, node: dict[Any, Any], stored: Format) -> Part | None:
    if "param_groups" in node:
        return _optimizer(path, node, stored)
    if any(isinstance(key, str) and key.startswith("param_groups.") for key in node):
        return _flattened(path, node)
    own = {key: value for key, value in node.items() if isinstance(value, Tensor) and isinstance(key, str)}
    if not any("." in key or _FLAT.search(key) or key in ("weight", "bias") for key in own):
        return None
    layout = _layout(list(own.values()))
    if any(_FLAT.search(key) for key in own):
        layout = Layout.LOCAL
    nbytes = sum(tensor.nbytes for tensor in own.values())
    return Part(path, Kind.MODEL, layout, tuple(own), len(own), nbytes, prefixes=prefixes(own))


def _layout(held: list[Tensor]) -> Layout:
    return Layout.SHARDED if any(tensor.sharded for tensor in held) else Layout.FULL


def _optimizer(path: Path, node: dict[Any, Any], stored: Format) -> Part:
    state = node.get("state")
    state = state if isinstance(state, dict) else {}
    groups = [group for group in elements(node["param_groups"]) if isinstance(group, dict)]
    parameters = list(state) or [name for group in groups for name in elements(group.get("params"))]
    keys = Keys.NUMBER if parameters and all(is_number(key) for key in parameters) else Keys.NAME
    entries = {".".join(map(str, place)): tensor for place, tensor in tensors(state)}
    layout = _layout(list(entries.values()))
    sizes = [len(tensor.shape or ()) for tensor in entries.values() if tensor.shape]
    if keys is Keys.NUMBER and sizes and max(sizes) == 1:
        layout = Layout.LOCAL
    names = tuple(key for key in parameters if isinstance(key, str)) if keys is Keys.NAME else ()
    adam = [group for group in groups if group.keys() >= _ADAM]
    return Part(
        path,
        Kind.OPTIMIZER,
        layout,
        names,
        len(entries),
        sum(tensor.nbytes for tensor in entries.values()),
        keys,
        _shared(entries) if stored is Format.FULL else (),
        undecoupled=any(DECOUPLED not in group for group in adam),
        written=tuple(_written(adam)),
        prefixes=prefixes(names),
    )


def _flattened(path: Path, node: dict[Any, Any]) -> Part:
    entries = {key: value for key, value in node.items() if isinstance(value, Tensor)}
    names = tuple(
        dict.fromkeys(key.partition(".")[2].rpartition(".")[0] for key in entries if key.startswith("state."))
    )
    nbytes = sum(tensor.nbytes for tensor in entries.values())
    held = list(entries.values())
    return Part(path, Kind.OPTIMIZER, _layout(held), names, len(held), nbytes, Keys.FLATTENED, prefixes=prefixes(names))


def elements(value: Any) -> list[Any]:
    """The elements of a list, which in a DCP folder is a dict by number."""
    found = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []
    return [element for element in found if not isinstance(element, dict) or element]


def is_number(key: object) -> bool:
    """Whether a key is a parameter's number; a DCP folder has it as text."""
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal())


def _shared(entries: dict[str, Tensor]) -> tuple[tuple[str, ...], ...]:
    places: dict[Any, list[str]] = defaultdict(list)
    for name, tensor in entries.items():
        if not tensor.sharded and 0 not in (tensor.shape or ()):
            places[tensor.place].append(name)
    return tuple(tuple(names) for names in places.values() if len(names) > 1)


def _written(adam: list[dict[Any, Any]]) -> Iterator[Written]:
    """What the groups of Adam and AdamW tell; `fused` has been in them since torch 2.0."""
    if any(DECOUPLED in group for group in adam):
        yield Written("2.7", None, f"its Adam groups have {DECOUPLED}")
    elif any("fused" in group for group in adam):
        yield Written("2.0", "2.6", f"its Adam groups have no {DECOUPLED}")
