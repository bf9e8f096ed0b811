"""Differences in words."""

from __future__ import annotations

from collections.abc import Sequence

from fsdp_migrate.prove.differences import Difference

TOLD = 8
WIDTH = 160  # characters told of a value
# What a trait is called in front of the place that has it.
_OF = {"keys": "keys of ", "length": "length of ", "shape": "shape of ", "dtype": "dtype of ", "device": "device of "}
_OF |= {"kind": "kind of tensor of ", "type": "type of "}
_ALONE = {"name": "name", "format": "written or read by", "skipped": "skipped", "optimizer": "number of the optimizer"}


def line(difference: Difference) -> str:
    """When, on which rank, in what, and how far both are apart."""
    where = f"{difference.when}, rank {difference.rank}, {difference.subject}"
    if difference.trait == "presence":
        return f"{where}: only {'after' if difference.pair.before is None else 'before'}{_place(difference)}"
    path = ".".join(difference.path)
    trait = (
        _OF.get(difference.trait, "") + path if path else _ALONE.get(difference.trait, _OF.get(difference.trait, ""))
    )
    told = [part for part in (trait.removesuffix(" of "), _values(difference)) if part]
    return f"{where}: {', '.join(told)}{_place(difference)}"


def _values(difference: Difference) -> str:
    if difference.trait == "keys":
        sides = (("only before", difference.before), ("only after", difference.after))
        return "; ".join(f"{side}: {cut(keys)}" for side, keys in sides if keys)
    tensors = difference.measure is not None and difference.before == difference.after
    told = "" if tensors else f"{cut(difference.before)} -> {cut(difference.after)}"
    if difference.deviation is not None:
        apart = f"largest difference {difference.deviation}" if tensors else f"difference {difference.deviation}"
        if difference.allowed is not None:
            apart += f" (relative {difference.deviation.relative:.2g}, allowed {difference.allowed:.2g})"
        told = f"{told}, {apart}" if told else apart
    elif tensors:
        told = f"{difference.before}, values not kept"
    return told


def cut(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _place(difference: Difference) -> str:
    before, after = difference.places
    if before is None or after is None or before == after:
        return f" at {after or before}" if after or before else ""
    return f" at {after} (before: {before})"


def lines(differences: Sequence[Difference]) -> list[str]:
    """The first differences, and how many more there are."""
    told = [line(difference) for difference in differences[:TOLD]]
    more = len(differences) - len(told)
    return [*told, f"{more} more places differ"] if more > 0 else told
