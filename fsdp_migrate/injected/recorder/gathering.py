"""Putting together what the ranks have parts of, once they agree on what that is."""

from __future__ import annotations

import datetime
import itertools
import json
from typing import Any

import torch
import torch.distributed as dist

Descriptions = dict[int, dict[str, Any]]

_PREFIX = "fsdp-migrate/final"
_rounds = itertools.count()


class Disagreement(Exception):
    """The ranks cannot put anything together: one of them is missing, or has something else."""


def exchange(description: dict[str, Any], patience: datetime.timedelta) -> Descriptions:
    """The descriptions of all ranks, by rank; through the store that they met at, without a collective.

    Raises:
        Disagreement: a rank did not come to the same place.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return {0: description}
    store = dist.distributed_c10d._get_default_store()
    here, number = this_rank(), next(_rounds)
    store.set(f"{_PREFIX}/{number}/{here}", json.dumps(description))
    found = {}
    for rank in range(dist.get_world_size()):
        key = f"{_PREFIX}/{number}/{rank}"
        try:
            store.wait([key], patience)
        except RuntimeError:  # torch has a type of its own for a store that waited in vain since 2.1
            raise Disagreement(f"rank {rank} did not come to the end of the program as rank {here} did") from None
        found[rank] = json.loads(store.get(key))
    return found


def check_order(operations: dict[int, list[list[Any]]]) -> None:
    """See that any two ranks have those operations in the same order that both take part in; the last item has ranks.

    Raises:
        Disagreement: they have not.
    """
    kinds: dict[str, list[int]] = {}
    for rank, own in operations.items():
        kinds.setdefault(json.dumps(own), []).append(rank)
    for (_, some), (_, others) in itertools.combinations(kinds.items(), 2):
        for one, other in itertools.product(some, others):
            mine, theirs = ([op for op in operations[rank] if {one, other} <= set(op[-1])] for rank in (one, other))
            if mine != theirs:
                first = next((op for op, same in itertools.zip_longest(mine, theirs) if op != same), None)
                what = first or theirs[len(mine)]
                raise Disagreement(
                    f"ranks {one} and {other} have other things to save: {' '.join(map(str, what[:-1]))}"
                )


def whole(piece: torch.Tensor, sizes: list[int], group: Any, device: torch.device) -> torch.Tensor:
    """The pieces of all ranks of a group, of these sizes, one after the other, as one flat tensor."""
    if len(sizes) == 1 or not max(sizes):
        return piece.detach().reshape(-1)
    padded = torch.zeros(max(sizes), dtype=piece.dtype, device=device)
    padded[: piece.numel()] = piece.detach().reshape(-1).to(device)
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes)])


def full(value: Any) -> torch.Tensor:
    """A DTensor put together."""
    device = value.device_mesh.device_type
    return (value if value.device.type == device else value.to(device)).full_tensor()  # type: ignore[no-any-return]


def this_rank() -> int:
    """The global rank of this process."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def ranks_of(group: Any) -> list[int]:
    """The global ranks of a process group."""
    return list(dist.get_process_group_ranks(group))


def ranks_of_mesh(value: Any) -> list[int]:
    """The global ranks that have a part of a DTensor."""
    return [int(rank) for rank in value.device_mesh.mesh.flatten().tolist()]
