"""The conclusion as text, as JSON, and as JUnit XML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import fsdp_migrate
from fsdp_migrate.prove import curves, telling
from fsdp_migrate.prove.compare import PhaseComparison
from fsdp_migrate.prove.curves import Curve, Points
from fsdp_migrate.prove.differences import Difference
from fsdp_migrate.prove.records import Place
from fsdp_migrate.prove.subject import Subject
from fsdp_migrate.prove.verdicts import Conclusion
from fsdp_migrate.verify.verdicts import Judgement, Verdict

SCHEMA_VERSION = 1
LISTED = 100  # differences of a phase in JSON

_COUNTED = {
    "loss": ("loss", "losses"),
    "norm": ("gradient norm", "gradient norms"),
    "step": ("learning rate", "learning rates"),
    "save": ("saved file", "saved files"),
    "load": ("loaded file", "loaded files"),
    "final": ("final state", "final states"),
    "tensors": ("tensor in them", "tensors in them"),
}
_MEBIBYTE = 2**20


def as_text(conclusion: Conclusion) -> str:
    """The verdict and what led to it, then for each phase what was compared, what was not, and what is told beside."""
    first, *more = conclusion.detail.split("\n")
    where = f" {conclusion.phase}" if conclusion.phase else ""
    lines = [f"{conclusion.verdict.value}{where}{': ' + first if first else ''}", *(f"    {line}" for line in more)]
    for found, (name, judgement) in zip(conclusion.comparison.phases, conclusion.judgements):
        if name != conclusion.phase and not judgement.verdict.fine:
            lines.append(f"{name}: {judgement.verdict.value}: {_first_line(judgement)}")
        lines += [f"{name}: {line}" for line in _phase_lines(found)]
    return "\n".join([*lines, f"bound: {conclusion.comparison.tolerance}", *_coverage_lines(conclusion)])


def _first_line(judgement: Judgement) -> str:
    return judgement.detail.partition("\n")[0]


def _phase_lines(found: PhaseComparison) -> Iterator[str]:
    phase = found.phase
    if phase.after is None:
        return
    ranks = _number(len(phase.before.ranks), "rank", "ranks")
    steps = _number(phase.before.steps, "step", "steps")
    yield f"compared on {ranks}, {steps}: {counted(found.counts)}"
    if phase.again is None:
        yield "before ran once: what two runs of it do not share is not known"
    for difference in found.noise[: telling.TOLD]:
        yield f"not compared, differs between two runs of before: {telling.line(difference)}"
    if len(found.noise) > telling.TOLD:
        yield f"not compared: {len(found.noise) - telling.TOLD} more places that differ between two runs of before"
    if found.within:
        largest = max(found.within, key=lambda difference: _relative(difference))
        yield f"within the bound: {_number(len(found.within), 'place', 'places')}, the largest: {telling.line(largest)}"
    for curve in curves.curves(phase):
        if found.within and curve.measure == "loss" and curve.rank == min(phase.before.ranks):
            yield f"loss of rank {curve.rank}, relative deviation by step: {_deviations(curve)}"
    if phase.after.completed:
        yield from _beside(found)


def _relative(difference: Difference) -> float:
    return difference.deviation.relative if difference.deviation else 0.0


def _deviations(curve: Curve) -> str:
    """How far the losses are apart at each step, and how far those of the control run."""
    before = dict(curve.before)
    sides = {"": dict(curve.after), "control ": dict(curve.control)}
    told = []
    for step, value in before.items():
        apart = [
            f"{name}{abs(side[step] - value) / abs(value):.1e}"
            for name, side in sides.items()
            if value and step in side
        ]
        told.append(f"{step}: {', '.join(apart)}")
    return "; ".join(told)


def _beside(found: PhaseComparison) -> Iterator[str]:
    """What no verdict rests on."""
    for measure, unit, divisor in (("seconds", "s per step", 1), ("peak memory", "MiB at most", _MEBIBYTE)):
        drawn = [curve for curve in curves.curves(found.phase) if curve.measure == measure]
        both = [_over_ranks(measure, [getattr(curve, side) for curve in drawn]) for side in ("before", "after")]
        if None not in both:
            yield f"{measure}: {' -> '.join(f'{(number or 0) / divisor:.3g}' for number in both)} {unit}"
    done = curves.collectives(found.phase)
    changed = [name for name in {**done.before, **done.after} if done.before.get(name) != done.after.get(name)]
    if changed:
        told = (f"{name} {done.before.get(name, 0)} -> {done.after.get(name, 0)}" for name in changed)
        yield f"collectives: {', '.join(told)}"
    given = curves.warnings(found.phase)
    for word, texts in (("gone", given.gone), ("new", given.new)):
        yield from (f"warning {word}: {telling.cut(text.splitlines()[0])}" for text in texts)


def _over_ranks(measure: str, sides: list[Points]) -> float | None:
    numbers = [curves.typical(points) if measure == "seconds" else _largest(points) for points in sides]
    return max((number for number in numbers if number is not None), default=None)


def _largest(points: Points) -> float | None:
    return max((value for _, value in points), default=None)


def _coverage_lines(conclusion: Conclusion) -> Iterator[str]:
    coverage = conclusion.comparison.coverage
    for side, files in (("before", coverage.before), ("after", coverage.after)):
        if files:
            ran, known = (sum(numbers) for numbers in zip(*files.values()))
            by_file = ", ".join(f"{path} {ran} of {known}" for path, (ran, known) in files.items())
            yield f"changed lines that ran, {side}: {ran} of {known} ({by_file})"


def counted(counts: Mapping[str, int]) -> str:
    """How much of each kind was compared, in words."""
    return ", ".join(_number(count, *_COUNTED[kind]) for kind, count in _in_order(counts)) or "nothing"


def _in_order(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(kind, counts[kind]) for kind in _COUNTED if counts.get(kind)]


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def as_json(conclusion: Conclusion) -> str:
    """One object; `docs/prove.schema.json` describes it."""
    comparison = conclusion.comparison
    coverage = comparison.coverage
    phases = zip(comparison.phases, conclusion.judgements)
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "tool_version": fsdp_migrate.__version__,
            "verdict": conclusion.verdict.value,
            "exit_code": conclusion.exit_code,
            "phase": conclusion.phase,
            "detail": conclusion.detail,
            "subject": None if conclusion.subject is None else _subject_object(conclusion.subject),
            "bound": str(comparison.tolerance),
            "changed_lines": {
                side: [{"path": path, "ran": ran, "changed": known} for path, (ran, known) in files.items()]
                for side, files in (("before", coverage.before), ("after", coverage.after))
            },
            "phases": [_phase_object(found, judgement) for found, (_, judgement) in phases],
        },
        indent=2,
        allow_nan=False,
    )


def _subject_object(subject: Subject) -> dict[str, object]:
    return {
        **asdict(subject),
        "files": [{"path": path, "before": old, "after": new} for path, (old, new) in subject.files.items()],
    }


def _phase_object(found: PhaseComparison, judgement: Judgement) -> dict[str, object]:
    lists = {"differences": found.differences, "within": found.within, "unknown": found.unknown, "noise": found.noise}
    done, given = curves.collectives(found.phase), curves.warnings(found.phase)
    return {
        "name": found.phase.name,
        "resumes": found.phase.resumes,
        "verdict": judgement.verdict.value,
        "detail": judgement.detail,
        "compared": dict(_in_order(found.counts)),
        "totals": {name: len(members) for name, members in lists.items()},
        **{name: [_as_object(difference) for difference in members[:LISTED]] for name, members in lists.items()},
        "curves": [_curve_object(curve) for curve in curves.curves(found.phase)],
        "collectives": {"before": done.before, "after": done.after},
        "warnings": {"before": given.before, "after": given.after},
    }


def _as_object(difference: Difference) -> dict[str, object]:
    deviation = difference.deviation
    before, after = difference.places
    return {
        "text": telling.line(difference),
        "when": difference.when,
        "steps_before": difference.moment.steps,
        "rank": difference.rank,
        "kind": difference.kind,
        "subject": difference.subject,
        "path": list(difference.path),
        "trait": difference.trait,
        "before": difference.before,
        "after": difference.after,
        "absolute": _finite(deviation.absolute) if deviation else None,
        "relative": _finite(deviation.relative) if deviation else None,
        "allowed": difference.allowed,
        "before_at": _place_object(before),
        "after_at": _place_object(after),
    }


def _place_object(place: Place | None) -> dict[str, object] | None:
    return {"path": place.path, "line": place.line} if place else None


def _curve_object(curve: Curve) -> dict[str, object]:
    sides = {"before": curve.before, "after": curve.after, "control": curve.control}
    points = {side: [[step, _finite(value)] for step, value in members] for side, members in sides.items()}
    return {"measure": curve.measure, "rank": curve.rank, **points}


def _finite(number: float) -> float | str:
    """A number, or the name of what JSON has no number for."""
    return number if math.isfinite(number) else str(number)


def as_junit(conclusion: Conclusion) -> str:
    """A case for each phase, and one for what no phase alone can tell."""
    root = Element("testsuites", {"name": "fsdp-migrate prove"})
    suite = SubElement(root, "testsuite", {"name": "fsdp-migrate prove"})
    for name, judgement in conclusion.judgements:
        _add_case(suite, name, judgement)
    if not conclusion.phase:
        _add_case(suite, "all", Judgement(conclusion.verdict, conclusion.detail))
    cases = list(suite)
    for element in (suite, root):
        element.set("tests", str(len(cases)))
        element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        element.set("errors", str(sum(case.find("error") is not None for case in cases)))
    suite.set("skipped", "0")
    indent(root)
    document: bytes = tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii")


def _add_case(suite: Element, name: str, judgement: Judgement) -> None:
    case = SubElement(suite, "testcase", {"name": _clean(name), "classname": "fsdp-migrate.prove"})
    if not judgement.verdict.fine:
        outcome = "failure" if judgement.verdict is Verdict.DIFFERS else "error"
        attributes: dict[str, Any] = {"message": _clean(_first_line(judgement)), "type": judgement.verdict.value}
        SubElement(case, outcome, attributes).text = _clean(judgement.detail)


def _clean(text: str) -> str:
    """The text without what XML has no way to write."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


FORMATS: dict[str, Callable[[Conclusion], str]] = {"text": as_text, "json": as_json, "junit": as_junit}
