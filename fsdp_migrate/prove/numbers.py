"""How far apart two numbers or two tensors are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fsdp_migrate.prove.trees import Piece, Tensor

if TYPE_CHECKING:
    import numpy

# torch's names of types that NumPy has under another one. It has no bfloat16: those bits are widened.
_NUMPY = {"bfloat16": "uint16"}
_COMPARED = ("bool", "uint8", "int", "float16", "float32", "float64", "complex64", "complex128")
# Bits of the fraction, as `torch.finfo` has them.
_FRACTION = {"bfloat16": 7, "float16": 10}


class Deviation(NamedTuple):
    """The largest difference, the largest finite value before, and by how much rtol and atol are exceeded."""

    absolute: float
    scale: float
    beyond: float

    @property
    def relative(self) -> float:
        """The largest difference relative to the largest value."""
        if self.absolute == 0:
            return 0.0
        return self.absolute / self.scale if self.scale else math.inf

    def __str__(self) -> str:
        return f"{self.absolute:.3g}"


@dataclass(frozen=True)
class Held:
    """Where a tensor is kept: its pieces on all ranks that are needed, in the folder of a run."""

    run: Path
    tensor: Tensor
    pieces: Sequence[Piece]


def of_scalars(before: float, after: float, rtol: float, atol: float) -> Deviation:
    """How far two numbers are apart; of infinities and of NaN, infinitely far unless both are the same."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return Deviation(0.0, abs(before), 0.0)
    absolute = abs(before - after)
    if not math.isfinite(absolute):
        return Deviation(math.inf, 0.0, math.inf)
    return Deviation(absolute, abs(before), max(0.0, absolute - rtol * abs(before) - atol))


def of_tensors(before: Held, after: Held, rtol: float, atol: float) -> Deviation | None:
    """How far two tensors of one shape are apart; None if their values were not kept or have a type without numbers."""
    old, new = _array(before), _array(after)
    if old is None or new is None:
        return None
    import numpy

    if not old.size:
        return Deviation(0.0, 0.0, 0.0)
    wide = numpy.complex128 if numpy.iscomplexobj(old) else numpy.float64
    old, new = old.astype(wide).reshape(-1), new.astype(wide).reshape(-1)
    with numpy.errstate(invalid="ignore", over="ignore"):
        apart = numpy.abs(old - new)
        apart[(old == new) | (numpy.isnan(old) & numpy.isnan(new))] = 0
        apart[~numpy.isfinite(apart)] = math.inf
        size = numpy.where(numpy.isfinite(old), numpy.abs(old), 0)
        beyond = max(0.0, float((apart - rtol * size - atol).max()))
    return Deviation(float(apart.max()), float(size.max()), beyond)


def ulp(dtype: str, scale: float) -> float | None:
    """One unit in the last place of values as large as `scale`, for types of half the size; None for others."""
    if dtype not in _FRACTION:
        return None
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _FRACTION[dtype]) if scale else 0.0


def _array(held: Held) -> numpy.ndarray[Any, Any] | None:
    """The whole tensor, put together of its pieces."""
    dtype = held.tensor.dtype
    if not dtype.startswith((*_COMPARED, *_NUMPY)):
        return None
    import numpy

    stored = numpy.dtype(_NUMPY.get(dtype, dtype))
    whole = numpy.zeros(held.tensor.shape, stored)
    filled = numpy.zeros(held.tensor.shape, bool)
    for piece in held.pieces:
        try:
            part = numpy.fromfile(held.run / "tensors" / f"{piece.digest}.bin", stored).reshape(piece.shape)
        except (OSError, ValueError):
            return None
        # A tensor without dimensions has one element and no offset.
        where = tuple(slice(start, start + size) for start, size in zip(piece.offset, piece.shape))
        whole[where], filled[where] = part, True
    if not filled.all():
        return None
    return (whole.astype("uint32") << 16).view("float32") if dtype == "bfloat16" else whole


def together(parts: Iterable[Tensor]) -> tuple[Piece, ...]:
    """The different pieces that several ranks hold of one tensor."""
    return tuple(dict.fromkeys(piece for tensor in parts for piece in tensor.pieces))
