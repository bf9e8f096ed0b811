"""The plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.migration.model import Migration, Numbers, Step
from fsdp_migrate.migration.reports import models
from fsdp_migrate.migration.reports.parts import parts
from fsdp_migrate.migration.standing import PARTS
from fsdp_migrate.report import plain
from fsdp_migrate.targets.fsdp2.steps import TOOL, YOU

# So many findings that are new or done stand in the text; the document has all.
_MOST_TOLD = 10
_LABELS = {"": "", "run": "$"}
_NOTHING = "nothing is left to do"


def lines(plan: Migration) -> Iterator[str]:
    """The plan: where the code stands, the steps, then the models one by one."""
    for project in plan.projects:
        yield f"{project.root}: torch{project.torch} ({project.source})"
    yield numbers(plan.numbers)
    yield from standing(plan)
    yield from _packages(plan)
    yield from (f"prove: {proof}" for proof in plan.proofs)
    yield from _compared(plan)
    for number, step in enumerate(plan.steps, 1):
        yield ""
        yield from _of_step(number, step, plan)
    if not plan.steps:
        yield _NOTHING
    if plan.models:
        yield ""
        yield "Model by model:"
        yield from models.lines(plan)


def numbers(found: Numbers) -> str:
    """The numbers in a sentence."""
    return (
        f"{plain.counted(found.findings, 'finding')} in {plain.counted(found.files, 'file')}: {found.safe} safe, "
        f"{found.unsafe} unsafe, {found.manual} manual; "
        f"the diffs add {plain.counted(found.lines_added, 'line')} and remove {found.lines_removed}"
    )


def standing(plan: Migration) -> Iterator[str]:
    """How many models and steps there are, and who does these."""
    if plan.target == "fsdp2":
        yield models.summary(plan)
    if plan.steps:
        done = sum(step.by == TOOL for step in plan.steps)
        yield f"{plain.counted(len(plan.steps), 'step')}: {done} by {TOOL}, {len(plan.steps) - done} by {YOU}"


def _packages(plan: Migration) -> Iterator[str]:
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
    for label, told, code, inner in parts(step, plan):
        indent = " " * (6 if inner else 3)
        yield indent + " ".join(word for word in (_LABELS.get(label, f"{label}:"), told, code) if word)
