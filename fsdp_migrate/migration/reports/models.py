"""The models of FSDP1 one by one, as text and as JSON with the same content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fsdp_migrate.report import plain
from fsdp_migrate.targets.fsdp2.steps import CLOSED, DECLARED, NOTE, OPEN, TOOL, Given, Step, status, steps
from fsdp_migrate.targets.fsdp2.target import Model, Place

if TYPE_CHECKING:
    from fsdp_migrate.migration.model import Migration

# So many files, and lines of a file, stand in the text; the document has all.
_MOST_FILES, _MOST_LINES = 20, 12
_STATES = (CLOSED, DECLARED, OPEN)


def lines(found: Migration) -> Iterator[str]:
    """The plan for people."""
    for model in found.models:
        yield from _of_model(model, found)


def summary(found: Migration) -> str:
    """How many models there are of each state."""
    models = found.models
    if not models:
        unread = plain.counted(len(found.failures), "file")
        none = "no model of FSDP1"
        return f"{unread} cannot be looked at; the others have {none}" if found.failures else none
    states = [status(model) for model in models]
    counted = [f"{states.count(state)} {state}" for state in _STATES if state in states]
    return f"{plain.counted(len(models), 'model')} of FSDP1: {', '.join(counted)}"


def _of_model(model: Model, plan: Migration) -> Iterator[str]:
    first, *more = [model.place(one.facts, one.call) for one in model.closure.constructions]
    files = {place.path for place in model.places}
    built = places((first, *more))
    size = f"{plain.counted(len(model.places), 'place')} in {plain.counted(len(files), 'file')}"
    numbers = freeing(model, plan)
    by = f" ({'step' if len(numbers) == 1 else 'steps'} {', '.join(map(str, numbers))})" if numbers else ""
    yield f"`{model.name}`, built at {built} ({size}): {status(model)}{by}"
    for step in own_steps(model, plan):
        yield f"  $ {step.command}" if step.command else f"  {step.title}: {step.text} (at {places(step.places)})"


def freeing(model: Model, plan: Migration) -> list[int]:
    """The numbers of the steps about what stops a model."""
    return sorted({plan.blocker(wall.reason, wall.step) for wall in model.conversion.walls})


def own_steps(model: Model, plan: Migration) -> list[Step]:
    """What is to be known of a model that converts, and its command; the steps of the plan tell the rest."""
    own = () if status(model) == OPEN else steps(model, plan.given)
    return [step for step in own if step.title == NOTE or step.by == TOOL]


def by_file(found: Sequence[Place], most: int | None = None) -> list[str]:
    """Places by file: `train.py:3,7` and `save.py:2`; of each file at `most` so many lines."""
    lines: dict[str, list[int]] = {}
    for place in found:
        lines.setdefault(place.piece, []).append(place.line)
    return [f"{piece}:{_numbers(numbers, most or len(numbers))}" for piece, numbers in lines.items()]


def places(found: Sequence[Place]) -> str:
    """The first places of many, by file."""
    told = by_file(found, _MOST_LINES)
    more = len(told) - _MOST_FILES
    return " ".join([*told[:_MOST_FILES], *([f"(and {plain.counted(more, 'more file')})"] if more > 0 else [])])


def _numbers(numbers: Sequence[int], most: int) -> str:
    """The first lines of a file, and how many more there are."""
    more = len(numbers) - most
    told = ",".join(map(str, numbers[:most]))
    return f"{told} (and {more} more)" if more > 0 else told


def document(found: Migration) -> dict[str, Any]:
    """The same for programs."""
    return {
        "summary": summary(found),
        "models": [_model(model, found.given) for model in found.models],
    }


def _model(model: Model, given: Given) -> dict[str, Any]:
    return {
        "name": model.name,
        "status": status(model),
        "built": [place_of(model.place(one.facts, one.call)) for one in model.closure.constructions],
        "places": [place_of(place) for place in model.places],
        "steps": [
            {
                "title": step.title,
                "by": step.by,
                "text": step.text,
                "todo": step.todo,
                "places": [place_of(place) for place in step.places],
                "command": step.command,
            }
            for step in steps(model, given)
        ],
    }


def place_of(place: Place) -> dict[str, Any]:
    """A place for programs."""
    return {"path": place.path, "line": place.line, **({} if place.cell is None else {"cell": place.cell})}
