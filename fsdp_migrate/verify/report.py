"""Results as text and as JSON, and a progress line."""

from __future__ import annotations

import json
from collections import Counter
from typing import TextIO

import fsdp_migrate
from fsdp_migrate.verify.axes import Axis
from fsdp_migrate.verify.fixtures import Fixture
from fsdp_migrate.verify.harness import Outcome, Progress, Result
from fsdp_migrate.verify.verdicts import Verdict

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


def as_text(outcome: Outcome, seconds: float, *, verbose: bool = False) -> str:
    """A line per fixture that is fine, everything known about one that is not, and a summary."""
    lines = []
    for run in outcome.runs:
        backend = "nccl" if run.device == "cuda" else "gloo"
        lines.append(f"torch {run.torch}, {run.world} ranks on {run.device} ({backend})")
        lines += [f"  worked around in torch: {note}" for note in run.workarounds]
    for result in outcome.results:
        lines += _as_lines(result, verbose)
    return "\n".join([*lines, *_summary(outcome, seconds)])


def _as_lines(result: Result, verbose: bool) -> list[str]:
    first, *rest = result.judgement.detail.splitlines() or [""]
    told = f"{result.verdict.value:<15} {result.fixture.name} [{_axis(result)}]"
    line = f"{told}: {first}" if first else told
    if result.verdict.fine and not verbose:
        return [line]
    return [line, *(f"    {more}" for more in rest)]


def _axis(result: Result) -> str:
    return f"torch {result.torch}, {result.axis}"


def _summary(outcome: Outcome, seconds: float) -> list[str]:
    counts = Counter(result.verdict for result in outcome.results)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    ran = [result for result in outcome.results if result.verdict is not Verdict.SKIPPED]
    checked = sum(bool(result.checked) for result in ran)
    fixtures = len({result.fixture.before for result in outcome.results})
    lines = [f"{fixtures} fixtures, {len(outcome.results)} runs in {seconds:.1f} s: {told or 'nothing ran'}"]
    if ran:
        lines.append(f"{checked} of {len(ran)} also agree with a single process" if outcome.succeeded else "")
    if not ran:
        lines.append("nothing ran: no evidence for anything")
    return [line for line in lines if line]


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
