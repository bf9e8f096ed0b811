"""The plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.migration.model import Migration, Numbers, Step
from fsdp_migrate.migration.reports import models
from fsdp_migrate.migration.standing import PARTS
from fsdp_migrate.report import plain

# So many findings that are new or done stand in the text; the document has all.
_MOST_TOLD = 10
_NOTHING = "nothing is left to do"


def lines(plan: Migration) -> Iterator[str]:
    """The plan: where the code stands, the steps, then the models one by one."""
    for project in plan.projects:
        yield f"{project.root}: torch{project.torch} ({project.source})"
    yield from _standing(plan)
    yield numbers(plan.numbers)
    for proof in plan.proofs:
        yield f"proven: {proof.verdict} in {proof.file}{': ' if proof.detail else ''}{proof.detail}"
    yield from _compared(plan)
    for number, step in enumerate(plan.steps, 1):
        yield ""
        yield from _of_step(number, step, plan)
    if not plan.steps:
        yield _NOTHING
    if plan.target == "fsdp2":
        yield ""
        yield "Model by model:"
        yield from models.lines(plan)


def numbers(found: Numbers) -> str:
    """The numbers in a sentence."""
    programs = f"{plain.counted(found.programs, 'model')} of FSDP1; " if found.programs else ""
    return (
        f"{plain.counted(found.findings, 'finding')} in {plain.counted(found.files, 'file')}: {found.safe} safe, "
        f"{found.unsafe} unsafe, {found.manual} manual; {programs}"
        f"the diffs add {plain.counted(found.lines_added, 'line')} and remove {found.lines_removed}"
    )


def _standing(plan: Migration) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("files that use", *PARTS, "findings")]
    rows += [(one.name, *(str(one.uses[part]) for part in PARTS), str(one.findings)) for one in plan.packages]
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *cells in rows:
        yield "  ".join([f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:]))])


def _compared(plan: Migration) -> Iterator[str]:
    if plan.compared is None:
        return
    found = plan.compared
    yield f"since {found.file}: {len(found.done)} done, {len(found.new)} new, {found.left} left"
    for word, told in (("done", found.done), ("new", found.new)):
        yield from (f"  {word}: {one.text}" for one in told[:_MOST_TOLD])
        if len(told) > _MOST_TOLD:
            yield f"  and {len(told) - _MOST_TOLD} more {word}"


def _of_step(number: int, step: Step, plan: Migration) -> Iterator[str]:
    yield f"{number}. [{step.by}] {step.title}"
    yield f"   {step.why}"
    if step.todo is not None:
        yield f"   to do: {step.todo}"
    if step.where:
        yield f"   at {models.places(sorted(set(step.where)))}{plan.after(step)}"
    if step.command is not None:
        yield f"   $ {step.command}"
    yield f"   then: {step.holds}"
    yield f"   check: {step.check}"
