"""What a plan tells of a step in texts, part by part."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.migration.model import Cause, Migration, Step
from fsdp_migrate.migration.reports import models
from fsdp_migrate.records import NamedTuple

# Of the things that a step is about texts tell so many.
_MOST = 40


class Part(NamedTuple):
    """A line about a step; if `inner`, about the line before it that is not. `code` stands behind `text`."""

    label: str = ""
    text: str = ""
    code: str = ""
    inner: bool = False


def parts(step: Step, plan: Migration) -> Iterator[Part]:
    """Why, what to do, where, with which command, and which command checks it."""
    if [cause.what for cause in step.causes] not in ([], [step.why]):
        yield from _of_causes(step)
    else:
        yield Part(text=step.why)
        if step.todo is not None:
            yield Part("to do", step.todo)
        if places := [place for cause in step.causes for place in cause.places] or sorted(set(step.where)):
            yield Part(text="at", code=models.places(places))
    if after := plan.after(step):
        yield Part(text=f"lines are those {after}")
    if step.command is not None:
        yield Part("run", code=step.command)
    yield Part("check", code=step.check)
    for proof, paths in plan.proven(step):
        yield Part("prove", f"{proof}; for", " ".join(paths))


def by_todo(step: Step, most: int | None = None) -> list[tuple[str, list[Cause]]]:
    """The things that a step is about, those with the same to do together; only the first if there is a `most`."""
    found: dict[str, list[Cause]] = {}
    for cause in step.causes[:most]:
        found.setdefault(cause.todo or step.todo or step.why, []).append(cause)
    return list(found.items())


def _of_causes(step: Step) -> Iterator[Part]:
    """Each thing to do once, with all that it is for."""
    for todo, causes in by_todo(step, _MOST):
        yield Part("to do", todo)
        for cause in causes:
            yield Part(text=f"{cause.what} at", code=models.places(cause.places), inner=True)
    if (more := len(step.causes) - _MOST) > 0:
        yield Part(text=f"and {more} more things, which the page and JSON have")
