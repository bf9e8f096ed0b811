"""Results as text and as JSON, and a progress line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import TextIO

import fsdp_migrate
from fsdp_migrate.verify.axes import Axis, counted
from fsdp_migrate.verify.fixtures import Fixture
from fsdp_migrate.verify.harness import Outcome, Progress, Result
from fsdp_migrate.verify.verdicts import Verdict
from fsdp_migrate.verify.worker.protocol import REPEATS

SCHEMA_VERSION = 1


def as_json(outcome: Outcome, seconds: float) -> str:
    """One object with `results` and how they came about."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "tool_version": fsdp_migrate.__version__,
            "succeeded": outcome.succeeded,
            "seconds": round(seconds, 3),
            "runs": [
                {"torch": r.torch, "world": r.world, "device": r.device, "workarounds": list(r.workarounds)}
                for r in outcome.runs
            ],
            "errors": outcome.errors,
            "results": [_as_object(result) for result in outcome.results],
        },
        indent=2,
    )


def _as_object(result: Result) -> dict[str, object]:
    axis = result.axis.facts()
    return {
        "fixture": result.fixture.name,
        "rules": list(result.fixture.header.rules),
        "torch": result.torch,
        "world": axis.pop("world"),
        "device": result.device,
        "axis": axis,
        "verdict": result.verdict.value,
        "fine": result.verdict.fine,
        "seconds": round(result.seconds, 3),
        "checked_by_oracle": result.checked,
        "unchecked": result.unchecked,
        "detail": result.judgement.detail,
    }


def as_text(outcome: Outcome, seconds: float) -> str:
    """A line per fixture that is fine, everything known about each run that is not, and a summary."""
    lines = []
    for run in outcome.runs:
        backend = "nccl" if run.device == "cuda" else "gloo"
        lines.append(f"torch {run.torch}, {counted(run.world, 'rank')} on {run.device} ({backend})")
        lines += [f"  worked around in torch: {note}" for note in run.workarounds]
    for _, group in groupby((result for result in outcome.results if not _repeats(result)), key=_kind):
        lines += _as_lines(list(group))
    return "\n".join([*lines, *_summary(outcome, seconds)])


def _repeats(result: Result) -> bool:
    """Whether it was not run because it would have repeated another one."""
    return result.verdict is Verdict.SKIPPED and result.judgement.detail.startswith(REPEATS)


def _kind(result: Result) -> tuple[object, ...]:
    """What runs have in common that are told in one line; of those that are not fine, everything known about them."""
    told = _first_line(result) if result.verdict.fine else result.judgement.detail
    return (result.fixture.name, result.torch, result.axis.world, result.verdict, told)


def _first_line(result: Result) -> str:
    return result.judgement.detail.partition("\n")[0]


def _as_lines(results: list[Result]) -> list[str]:
    first = results[0]
    where = (
        str(first.axis) if len(results) == 1 else f"{counted(first.axis.world, 'rank')}, {len(results)} configurations"
    )
    line = f"{first.verdict.value:<15} {first.fixture.name} [torch {first.torch}, {where}]"
    line = f"{line}: {_first_line(first)}" if _first_line(first) else line
    more = [] if first.verdict.fine else first.judgement.detail.split("\n")[1:]
    return [line, *(f"    {told}" for told in more)]


def _summary(outcome: Outcome, seconds: float) -> list[str]:
    told = [result for result in outcome.results if not _repeats(result)]
    counts = _counts(Counter(result.verdict for result in told))
    ran = [result for result in told if result.verdict is not Verdict.SKIPPED]
    checked = sum(bool(result.checked) for result in ran)
    fixtures = counted(len({result.fixture.before for result in outcome.results}), "fixture")
    lines = [f"{fixtures}, {counted(len(told), 'run')} in {seconds:.1f} s: {counts}"]
    if ran and outcome.succeeded:
        others = "" if checked == len(ran) else "; the others were not compared with one"
        lines.append(f"{checked} of {len(ran)} also agree with a single process{others}")
    repeats = len(outcome.results) - len(told)
    if repeats:
        lines.append(f"{counted(repeats, 'run')} left out: the programs do not depend on the options that differ there")
    if not ran:
        lines.append("nothing ran: there is no evidence")
    return lines


def as_markdown(outcome: Outcome, seconds: float) -> str:
    """A table of rules by torch release: how many fixtures got which verdict, the worst of a fixture's runs each."""
    lanes = list(dict.fromkeys(result.torch for result in outcome.results))
    fixtures: dict[str, dict[str, dict[str, Verdict]]] = {}
    for result in outcome.results:
        rule = result.fixture.name.rpartition("/")[0] or result.fixture.name
        by_fixture = fixtures.setdefault(rule, {}).setdefault(result.torch, {})
        known = by_fixture.get(result.fixture.name, Verdict.SKIPPED)
        by_fixture[result.fixture.name] = max(known, result.verdict, key=_badness)
    lines = [f"| rule | {' | '.join(lane.partition('+')[0] for lane in lanes)} |", f"|---|{'---|' * len(lanes)}"]
    for rule, by_lane in fixtures.items():
        cells = [_counts(Counter(by_lane.get(lane, {}).values())) for lane in lanes]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    notes = [f"* {_as_lines([result])[0]}" for result in outcome.results if not result.verdict.fine]
    return "\n".join([*lines, "", *_summary(outcome, seconds), *notes])


def _badness(verdict: Verdict) -> int:
    """Skipping tells nothing, so any other verdict counts before it."""
    return -1 if verdict is Verdict.SKIPPED else list(Verdict).index(verdict)


def _counts(counts: Counter[Verdict]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]) or "-"


FORMATS: dict[str, Callable[[Outcome, float], str]] = {"text": as_text, "json": as_json, "markdown": as_markdown}


class Bar(Progress):
    """A line on a terminal that is overwritten as the run goes on."""

    WIDTH = 24

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = self._done = 0
        self._what = ""

    def begin(self, total: int, what: str) -> None:
        """Show an empty bar."""
        self._total, self._done, self._what = total, 0, what
        self._show("starting")

    def step(self, fixture: Fixture, axis: Axis) -> None:
        """Show one point more."""
        self._done += 1
        self._show(fixture.name)

    def end(self) -> None:
        """Clear the line."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()

    def _show(self, name: str) -> None:
        full = self.WIDTH * self._done // max(1, self._total)
        bar = "#" * full + "." * (self.WIDTH - full)
        self._stream.write(f"\r\x1b[K{self._what} [{bar}] {self._done}/{self._total} {name}"[:150])
        self._stream.flush()
