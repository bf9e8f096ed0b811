"""How far the two versions may be apart: not at all, within a tolerance, or no further than rounding takes before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fsdp_migrate.prove import numbers
from fsdp_migrate.prove.differences import Difference
from fsdp_migrate.prove.numbers import Deviation
from fsdp_migrate.prove.pairs import Moment

FIRST = 1e-5  # the first deviation may be as large, relative to the largest value; types of half the size: one ulp
FIRST_DOUBLE = 1e-12
SPREAD = 10  # later ones may be as many times as far as the control run has gone by then


@dataclass(frozen=True)
class Tolerance:
    """`rtol` and `atol` hold for each element; `drift` lets deviations grow as those of a control run do."""

    rtol: float | None = None
    atol: float | None = None
    drift: bool = False

    @property
    def bitwise(self) -> bool:
        """Whether nothing may differ."""
        return self.rtol is None and self.atol is None and not self.drift

    def __str__(self) -> str:
        given = f"rtol {self.rtol or 0:g}, atol {self.atol or 0:g}"
        if not self.drift:
            return "bitwise" if self.bitwise else f"within {given} for each element"
        first = f"{FIRST:g} (float64 {FIRST_DOUBLE:g}; bfloat16 and float16 one ulp)" if self.rtol is None else given
        return f"first deviation within {first} of the largest value, later ones within {SPREAD} times the control run"


BITWISE = Tolerance()
DRIFT = Tolerance(drift=True)


class Spread:
    """How far runs of the same code come apart, by what was compared."""

    def __init__(self, found: Iterable[Difference]) -> None:
        self._seen: dict[object, list[tuple[Moment, float]]] = defaultdict(list)
        for difference in found:
            if difference.deviation is not None:
                self._seen[_where(difference)].append((difference.moment, difference.deviation.relative))

    def until(self, difference: Difference) -> float:
        """The largest one at the same place by then, on any rank."""
        seen = self._seen.get(_where(difference), ())
        return max((size for moment, size in seen if moment.steps <= difference.moment.steps), default=0.0)


def _where(difference: Difference) -> tuple[object, ...]:
    return difference.kind, difference.pair.key.name, difference.path


@dataclass(frozen=True)
class Judged:
    """Differences that a tolerance rules out, those that it allows, and those whose values are not known."""

    beyond: tuple[Difference, ...]
    within: tuple[Difference, ...]
    unknown: tuple[Difference, ...]


def judge(found: Iterable[Difference], tolerance: Tolerance, spread: Spread) -> Judged:
    """Divide differences, in the order of time."""
    beyond: list[Difference] = []
    within: list[Difference] = []
    unknown: list[Difference] = []
    first: Moment | None = None
    for difference in found:
        # By digests alone values are known to differ, unless they were cut into other pieces.
        if difference.measure is None or (tolerance.bitwise and difference.trait == "value"):
            beyond.append(difference)
            continue
        told = difference.measured(tolerance.rtol or 0.0, tolerance.atol or 0.0)
        if told.deviation is None:
            unknown.append(told)
        elif told.deviation.absolute:
            first = first or told.moment
            allowed = _allowed(told, told.deviation, tolerance, spread, first=told.moment == first)
            fits = _fits(told.deviation, allowed, tolerance)
            (within if fits else beyond).append(replace(told, allowed=allowed))
    return Judged(tuple(beyond), tuple(within), tuple(unknown))


def _allowed(
    difference: Difference, deviation: Deviation, tolerance: Tolerance, spread: Spread, *, first: bool
) -> float | None:
    """How far it may be, relative to the largest value; None if each element is judged on its own."""
    if not tolerance.drift:
        return None
    floor = _floor(difference, deviation, tolerance)
    return floor if first or not floor else max(floor, SPREAD * spread.until(difference))


def _floor(difference: Difference, deviation: Deviation, tolerance: Tolerance) -> float:
    """What rounding alone may do; numbers that are computed without rounding have none."""
    if not difference.dtype.startswith(("float", "bfloat", "complex")):
        return 0.0
    if tolerance.rtol is not None:
        return tolerance.rtol
    unit = numbers.ulp(difference.dtype, deviation.scale)
    if unit is not None:
        return unit / deviation.scale if deviation.scale else 0.0
    return FIRST_DOUBLE if difference.dtype in ("float64", "complex128") else FIRST


def _fits(deviation: Deviation, allowed: float | None, tolerance: Tolerance) -> bool:
    if allowed is None:
        return not deviation.beyond and not tolerance.bitwise
    return deviation.relative <= allowed or deviation.absolute <= (tolerance.atol or 0.0)


def measured(found: Sequence[Difference], limit: int) -> tuple[Difference, ...]:
    """The same, the first ones with their deviation."""
    return (*(d if d.deviation else d.measured() for d in found[:limit]), *found[limit:])
