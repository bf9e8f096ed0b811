"""Bitwise comparison of two snapshots, with a short account of what differs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .protocol import Difference
from .snapshot import Array, Items, Plain, Row, Snapshot

LIMIT = 8  # differences told per observation
WIDTH = 90  # characters told of a value


def compare(before: list[tuple[str, Snapshot]], after: list[tuple[str, Snapshot]]) -> list[Difference]:
    """What the observations of two runs do not share; empty when they agree bitwise and in order."""
    found: list[Difference] = []
    old, new = dict(before), dict(after)
    for name, snapshot in old.items():
        if name not in new:
            found.append(Difference(name, name, describe(snapshot), "(not observed)"))
        else:
            for _, difference in zip(range(LIMIT), differences(snapshot, new[name], name)):
                found.append(Difference(name, *difference))
    found += [Difference(name, name, "(not observed)", describe(new[name])) for name in new if name not in old]
    if not found and list(old) != list(new):
        found.append(Difference("order of observations", "", ", ".join(old), ", ".join(new)))
    return found


def differences(before: Snapshot, after: Snapshot, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, value before, value after) for each difference below `where`."""
    if type(before) is not type(after) or before.kind != after.kind:
        yield where, describe(before), describe(after)
    elif isinstance(before, Items) and isinstance(after, Items):
        yield from _items(before, after, where)
    elif isinstance(before, Row) and isinstance(after, Row):
        if len(before.entries) != len(after.entries):
            yield where, describe(before), describe(after)
        else:
            for index, (one, other) in enumerate(zip(before.entries, after.entries)):
                yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(before, Array) and isinstance(after, Array):
        yield from _arrays(before, after, where)
    elif isinstance(before, Plain) and isinstance(after, Plain) and before != after:
        start = _first_difference(before.text, after.text)
        yield where, _shorten(before.text, start), _shorten(after.text, start)


def _items(before: Items, after: Items, where: str) -> Iterator[tuple[str, str, str]]:
    old, new = dict(before.entries), dict(after.entries)
    gone, come = [key for key in old if key not in new], [key for key in new if key not in old]
    if gone or come:
        if not old or not new:
            yield where, describe(before), describe(after)
        else:
            yield f"keys of {where}", f"only here: {_join(gone)}", f"only here: {_join(come)}"
    # torch promises no order inside one parameter group, and releases differ in it.
    elif list(old) != list(new) and not _is_group(where):
        yield f"order of keys of {where}", _join(list(old)), _join(list(new))
    for key, value in old.items():
        if key in new:
            yield from differences(value, new[key], f"{where}[{key}]")


def _is_group(where: str) -> bool:
    return where.endswith("]") and where[: where.rindex("[")].endswith("['param_groups']")


def _arrays(before: Array, after: Array, where: str) -> Iterator[tuple[str, str, str]]:
    for trait in ("dtype", "shape", "device", "requires_grad"):
        one, other = getattr(before, trait), getattr(after, trait)
        if one != other:
            yield f"{trait} of {where}", str(one), str(other)
            return
    same = _bits(before.data) == _bits(after.data)
    if not bool(same.all()):
        element = int((~same).nonzero()[0]) // before.data.element_size()
        yield f"{where} element {element}", _number(before.data, element), _number(after.data, element)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _number(tensor: torch.Tensor, element: int) -> str:
    return repr(tensor.reshape(-1)[element].item())


def describe(snapshot: Snapshot) -> str:
    """A short text for a snapshot."""
    if isinstance(snapshot, Plain):
        text = snapshot.text
    elif isinstance(snapshot, Array):
        text = f"{snapshot.kind} {snapshot.dtype.replace('torch.', '')}{list(snapshot.shape)}"
        if snapshot.data.numel() <= 4:
            text += f" {snapshot.data.reshape(-1).tolist()}"
    elif isinstance(snapshot, Items) and snapshot.kind in ("ShardedTensor", "DTensor"):
        shape = dict(snapshot.entries)["shape"]
        text = f"{snapshot.kind} {describe(shape)}"
    elif isinstance(snapshot, Items):
        text = f"{snapshot.kind} with keys {_join([key for key, _ in snapshot.entries])}" if snapshot.entries else "{}"
    else:
        text = f"{snapshot.kind} of {len(snapshot.entries)}: {', '.join(map(describe, snapshot.entries[:4]))}"
    return _shorten(text)


def _shorten(text: str, start: int = 0) -> str:
    """`text` in `WIDTH` characters, so that the one at `start` is among them."""
    if start > WIDTH - 10:
        text = "..." + text[start - 10 :]
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _first_difference(one: str, other: str) -> int:
    return next((index for index, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _join(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (f", ... ({len(keys)})" if len(keys) > 4 else "") if keys else "nothing"
