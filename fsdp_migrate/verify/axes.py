"""The configurations that a fixture is run in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")
OPTIMIZERS = ("AdamW", "SGD")


@dataclass(frozen=True)
class Axis:
    """One point of the axes."""

    world: int
    use_orig_params: bool
    strategy: str = "FULL_SHARD"
    optimizer: str = "AdamW"

    def facts(self) -> dict[str, object]:
        """The point as facts that the conditions of a header are about."""
        return asdict(self)

    def __str__(self) -> str:
        original = f"use_orig_params={self.use_orig_params}"
        return f"{counted(self.world, 'rank')}, {self.strategy}, {original}, {self.optimizer}"


def counted(number: int, thing: str) -> str:
    """`number` of a thing in words, such as ``1 rank`` and ``2 ranks``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def points(world: int, *, full: bool = False) -> list[Axis]:
    """The points for `world` ranks: both `use_orig_params`, or (`full`) every combination.

    HYBRID_SHARD shards within two halves and replicates across them, so it is part of it from 4 ranks on.
    """
    if not full:
        return [Axis(world, original) for original in (False, True)]
    strategies = [s for s in STRATEGIES if s != "HYBRID_SHARD" or (world >= 4 and world % 2 == 0)]
    return [
        Axis(world, original, strategy, optimizer)
        for strategy, original, optimizer in product(strategies, (False, True), OPTIMIZERS)
    ]
