"""What two runs are told beside a verdict: numbers over the steps, collectives, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from fsdp_migrate.prove.compare import Phase
from fsdp_migrate.prove.records import Event, Run

# A number for each optimizer step that is under way, or was just taken.
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Curve:
    """One measure on one rank, as (step, number); steps are counted from 1. `control` is empty where none was run."""

    measure: str
    rank: int
    before: Points
    after: Points
    control: Points


@dataclass(frozen=True)
class Counts:
    """How often something was seen in each run, all ranks together."""

    before: dict[str, int]
    after: dict[str, int]

    @property
    def gone(self) -> list[str]:
        """What only before did."""
        return [name for name in self.before if name not in self.after]

    @property
    def new(self) -> list[str]:
        """What only after did."""
        return [name for name in self.after if name not in self.before]


def _scalar(event: Event) -> float | None:
    value = event.data["value"]
    return float.fromhex(value) if isinstance(value, str) else None


_MEASURES: dict[str, tuple[str, Callable[[Event], float | None]]] = {
    "loss": ("loss", _scalar),
    "gradient norm": ("norm", _scalar),
    "learning rate": ("step", lambda event: event.data["lr"][0] if event.data["lr"] else None),
    "seconds": ("cost", lambda event: float(event.data["seconds"])),
    "peak memory": ("cost", lambda event: float(event.data["peak"])),
}


def curves(phase: Phase) -> Iterator[Curve]:
    """All measures that a rank of either version has."""
    for measure in _MEASURES:
        for rank in sorted({*phase.before.ranks, *(phase.after.ranks if phase.after else ())}):
            sides = [_points(run, rank, measure) for run in (phase.before, phase.after, phase.control)]
            if any(sides):
                yield Curve(measure, rank, *sides)


def _points(run: Run | None, rank: int, measure: str) -> Points:
    if run is None or rank not in run.ranks:
        return ()
    kind, number = _MEASURES[measure]
    # What a step costs is known when it was taken.
    ahead = 0 if kind == "cost" else 1
    found = ((event.step + ahead, number(event)) for event in run.ranks[rank].of(kind))
    return tuple((step, value) for step, value in found if value is not None)


def typical(points: Points) -> float | None:
    """The median over the steps but the first one, which sets things up."""
    values = [value for step, value in points if step > 1] or [value for _, value in points]
    return median(values) if values else None


def collectives(phase: Phase) -> Counts:
    """The collectives of each kind."""
    return _counted(phase, "collective", lambda event: str(event.data["kind"]))


def warnings(phase: Phase) -> Counts:
    """The warnings by category and text, wherever they were given: lines move."""
    return _counted(phase, "warning", lambda event: f"{event.data['category']}: {event.data['text']}")


def _counted(phase: Phase, kind: str, name: Callable[[Event], str]) -> Counts:
    sides: list[dict[str, int]] = []
    for run in (phase.before, phase.after):
        counter: Counter[str] = Counter()
        for _, event in run.of(kind) if run else ():
            counter[name(event)] += int(event.data.get("times", 1))
        sides.append(dict(counter))
    return Counts(*sides)
