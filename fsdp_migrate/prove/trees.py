"""What a program saved, loaded or ended with, as its record tells it: trees of tensors and plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

_BRANCHES = ("dict", "list", "tuple")


@dataclass(frozen=True)
class Piece:
    """The part of a tensor that one rank holds: where it begins, its shape, and the SHA-256 of its bytes."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class Tensor:
    """A tensor; `shape` is that of the whole, `pieces` are those of the rank that tells it."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    kind: str
    pieces: tuple[Piece, ...]

    @property
    def numel(self) -> int:
        """The number of elements of the whole."""
        return prod(self.shape)

    def __str__(self) -> str:
        kind = "" if self.kind == "Tensor" else f"{self.kind} "
        return f"{kind}{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Value:
    """Anything else, by its short text and a digest of all of it."""

    type: str
    text: str
    digest: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Branch:
    """A dict, list or tuple; the keys of the last two are positions."""

    kind: str
    children: Mapping[str, Node]

    def __str__(self) -> str:
        if not self.children:
            return f"an empty {self.kind}"
        return f"a {self.kind} with {shown_keys(list(self.children))}"


Node = Tensor | Value | Branch


def shown_keys(keys: Sequence[str], limit: int = 4) -> str:
    """The first keys, and how many there are if these are not all."""
    return ", ".join(keys[:limit]) + (f", ... ({len(keys)} in all)" if len(keys) > limit else "")


def parse(raw: Any) -> Node:
    """The tree of a record.

    Raises:
        KeyError, TypeError, ValueError: where it is none.
    """
    kind = raw["t"]
    if kind in _BRANCHES:
        return Branch(kind, {str(key): parse(child) for key, child in raw["k"]})
    if kind == "value":
        return Value(str(raw.get("type", "")), str(raw["repr"]), str(raw["digest"]))
    if kind != "tensor":
        raise ValueError(f"a node of the kind {kind!r}")
    shape = tuple(map(int, raw["shape"]))
    if "shards" in raw:
        shards = raw["shards"]
        pieces = tuple(
            Piece(tuple(map(int, s["offset"])), tuple(map(int, s["shape"])), str(s["digest"])) for s in shards
        )
    else:
        pieces = (Piece((0,) * len(shape), shape, str(raw["digest"])),)
    return Tensor(str(raw["dtype"]), shape, str(raw["device"]), str(raw.get("kind", "Tensor")), pieces)


def at(tree: Node | None, path: Sequence[str]) -> Node | None:
    """What stands at a path, if anything."""
    for key in path:
        tree = tree.children.get(key) if isinstance(tree, Branch) else None
    return tree


def tensors(tree: Node) -> int:
    """How many tensors there are."""
    return sum(map(tensors, tree.children.values())) if isinstance(tree, Branch) else isinstance(tree, Tensor)
