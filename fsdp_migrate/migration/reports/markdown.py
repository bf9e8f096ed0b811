"""The plan as Markdown, for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_migrate.migration.model import Diff, Migration, Step
from fsdp_migrate.migration.reports import text
from fsdp_migrate.migration.reports.parts import parts
from fsdp_migrate.migration.standing import PARTS
from fsdp_migrate.report import plain

# GitHub takes no longer text in a description or a comment.
LONGEST = 65_536
_LEFT_OUT = (
    "\n*The diffs are left out: with them this text would be longer than GitHub takes (`plan -o plan.html` has all).*\n"
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def document(plan: Migration) -> str:
    """The plan; without diffs where GitHub would not take it with them, and cut short as a last resort."""
    whole = "\n".join(_lines(plan, diffs=True))
    if len(whole) <= LONGEST:
        return whole
    short = "\n".join(_lines(plan, diffs=False)) + _LEFT_OUT
    return short if len(short) <= LONGEST else short[: LONGEST - len(_LEFT_OUT)].rpartition("\n- [ ]")[0] + _LEFT_OUT


def _lines(plan: Migration, *, diffs: bool) -> Iterator[str]:
    yield "## What the migration takes"
    yield ""
    for project in plan.projects:
        yield f"* {_code(project.root)}: torch {_code(str(project.torch))} ({_plain(project.source)})"
    yield f"* {text.numbers(plan.numbers)}"
    yield from (f"* {line}" for line in text.standing(plan))
    yield from (f"* prove: {_plain(str(one))}" for one in plan.proofs)
    if plan.compared is not None:
        told = plan.compared
        yield f"* since {_code(told.file)}: {len(told.done)} done, {len(told.new)} new, {told.left} left"
    yield ""
    if plan.packages:
        yield f"| files that use | {' | '.join(PARTS)} | findings |"
        yield f"|---|{'--:|' * (len(PARTS) + 1)}"
        for one in plan.packages:
            yield f"| {_code(one.name)} | {' | '.join(str(one.uses[part]) for part in PARTS)} | {one.findings} |"
        yield ""
    for step in plan.steps:
        yield from _step(step, plan, diffs=diffs)
    if not plan.steps:
        yield "Nothing is left to do."


def _step(step: Step, plan: Migration, *, diffs: bool) -> Iterator[str]:
    yield f"- [ ] **{_plain(step.title)}** ({step.by})"
    for label, told, code, inner in parts(step, plan):
        words = (label and f"{label}:", told and _plain(told), code and _code(code))
        yield f"{'    ' if inner else '  '}- {' '.join(word for word in words if word)}"
    found = step.all_diffs
    if found and diffs:
        yield f"  - <details><summary>{plain.counted(len(found), 'diff')}</summary>"
        for one in found:
            yield ""
            yield from (f"    {line}" for line in _fenced(one))
        yield ""
        yield "    </details>"


def _fenced(diff: Diff) -> Iterator[str]:
    code = diff.patch.decode("utf-8", "backslashreplace").rstrip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    yield f"{fence}diff"
    yield from code.split("\n")
    yield fence


def _code(value: str) -> str:
    fence = "`" * (1 + max(map(len, re.findall("`+", value)), default=0))
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    return f"{fence}{pad}{value}{pad}{fence}"


def _plain(value: str) -> str:
    """A text of the plan: what stands between backticks is code, the rest means nothing in Markdown."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return _SPECIAL.sub(r"\\\1", value)
    return "".join(_code(part) if number % 2 else _SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))
