"""The conclusion as one HTML page, without anything from elsewhere: what JSON has, with its curves drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from fsdp_migrate.prove import report
from fsdp_migrate.prove.verdicts import Conclusion

WIDTH, HEIGHT = 640, 220  # of a drawing, in its own units
_SIDES = ("before", "after", "control")
_UNITS = {"seconds": (1.0, " s"), "peak memory": (2.0**-20, " MiB")}


class PageError(Exception):
    """The page cannot be made. The message is one line for the user."""


class Line(NamedTuple):
    """One side of a drawing: the points of a polyline, and how many of them were no numbers."""

    side: str
    points: str
    missing: int


class Drawing(NamedTuple):
    """A measure on one rank over the steps, with its range."""

    title: str
    unit: str
    lines: list[Line]
    first_step: int
    last_step: int
    lowest: float
    highest: float


def as_page(conclusion: Conclusion) -> str:
    """The page.

    Raises:
        PageError: Jinja2 is not there.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise PageError("--html needs Jinja2: pip install jinja2") from None
    document = json.loads(report.as_json(conclusion))
    drawings = {phase["name"]: list(_drawings(phase["curves"])) for phase in document["phases"]}
    template = files("fsdp_migrate.prove").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(rows=_rows, counted=report.counted)
    size = {"width": WIDTH, "height": HEIGHT}
    return environment.from_string(template).render(document=document, drawings=drawings, **size) + "\n"


def _rows(counts: dict[str, dict[str, int]]) -> list[tuple[str, int, int]]:
    """What either version has, and how often both have it."""
    before, after = counts["before"], counts["after"]
    return [(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]


def _drawings(curves: list[dict[str, Any]]) -> Iterator[Drawing]:
    for curve in curves:
        factor, unit = _UNITS.get(curve["measure"], (1.0, ""))
        sides = {side: [(step, float(value) * factor) for step, value in curve[side]] for side in _SIDES}
        seen = [(step, value) for points in sides.values() for step, value in points if math.isfinite(value)]
        if not seen:
            continue
        steps, values = [step for step, _ in seen], [value for _, value in seen]
        bounds = (min(steps), max(steps), min(values), max(values))
        lines = [_line(side, points, bounds) for side, points in sides.items() if points]
        yield Drawing(f"{curve['measure']}, rank {curve['rank']}", unit, lines, *bounds)


def _line(side: str, points: list[tuple[int, float]], bounds: tuple[int, int, float, float]) -> Line:
    first, last, lowest, highest = bounds
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    placed = (
        f"{WIDTH * _share(step, first, last):.1f},{HEIGHT * (1 - _share(value, lowest, highest)):.1f}"
        for step, value in finite
    )
    return Line(side, " ".join(placed), len(points) - len(finite))


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1; in the middle where these are one."""
    return 0.5 if high == low else (value - low) / (high - low)
