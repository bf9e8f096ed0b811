"""From what every rank reported to one verdict."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from fsdp_migrate.verify.fixtures import Condition, Evidence, Fixture
from fsdp_migrate.verify.worker.protocol import SIDES, Exit, Failure, RankRecord, Side

# What a rank says when another one has left: not the cause of anything.
LEFT_BEHIND = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|timed out|timeout|monitoredbarrier|socket|"
    r"remote process exited|application timeout",
    re.IGNORECASE,
)
_LOST = re.compile(r"connection (was )?(closed|reset)|broken pipe|remote process exited", re.IGNORECASE)
# By the rank's own alarm clock, or by NCCL's, which ends the process.
_HANG = re.compile(r"Timeout \(\d+:\d\d:\d\d|Watchdog caught collective operation timeout")
_FATAL = re.compile(r"Fatal Python error: (.+)")


class Verdict(str, Enum):
    """How a fixture fared on one point of the axes."""

    SAME = "SAME"
    FIXED = "FIXED"
    AS_DECLARED = "AS DECLARED"
    SKIPPED = "SKIPPED"
    DIFFERS = "DIFFERS"
    NOT_AS_DECLARED = "NOT AS DECLARED"
    NO_EVIDENCE = "NO EVIDENCE"
    STILL_LEGACY = "STILL LEGACY"
    DESYNC = "DESYNC"
    HANG = "HANG"
    CRASH = "CRASH"
    ERROR = "ERROR"

    @property
    def fine(self) -> bool:
        """Whether a run with only such verdicts succeeds."""
        return self in _FINE


# What a header calls the requests to torch by, where they differ and nothing that a rank uses does.
PLACEMENT = "what torch was asked for"
# The requests are those to FSDP1, which programs of these targets no longer make.
_ASKS_OTHERS = frozenset({"fsdp2"})
BROKEN = (Verdict.DESYNC, Verdict.HANG, Verdict.CRASH, Verdict.ERROR)
_FINE = (Verdict.SAME, Verdict.FIXED, Verdict.AS_DECLARED, Verdict.SKIPPED)


@dataclass(frozen=True)
class Judgement:
    """A verdict and what led to it; the first line of `detail` is the short of it."""

    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """Everything known about one fixture on one point: per rank its record, exit and dumped stacks."""

    fixture: Fixture
    facts: Mapping[str, object]
    ranks: Sequence[RankRecord]
    exits: Mapping[int, Exit] = field(default_factory=dict)
    stacks: Mapping[int, str] = field(default_factory=dict)
    output: str = ""

    def sides(self, side: str) -> dict[int, Side]:
        """What each rank reported about one program."""
        return {record.rank: record.sides[side] for record in self.ranks if side in record.sides}

    def effective(self) -> dict[str, object]:
        """The facts, with the axes that the scenario set itself."""
        facts = dict(self.facts)
        for record in self.ranks:
            for side in record.sides.values():
                facts |= side.fixed
        return facts


def judge(report: Report) -> Judgement:
    """The verdict on one fixture on one point of the axes."""
    skips = [side.skip for name in SIDES for side in report.sides(name).values() if side.skip]
    if skips:
        return Judgement(Verdict.SKIPPED, skips[0])
    if not all(record.finished for record in report.ranks):
        return _broken(report)
    return (
        _judge_before(report)
        or _judge_after(report)
        or _judge_before_evidence(report)
        or _judge_values(report)
        or _judge_after_evidence(report)
        or _fine(report)
    )


def _holds(conditions: Sequence[Condition], facts: Mapping[str, object]) -> bool:
    return all(condition.holds(facts) for condition in conditions)


def _expected_failure(report: Report) -> str | None:
    facts = report.effective()
    return next((fails.exception for fails in report.fixture.header.fails if _holds(fails.when, facts)), None)


def _judge_before(report: Report) -> Judgement | None:
    failures = _failures(report, "before")
    expected = _expected_failure(report)
    if expected is None:
        return _judge_failures(report, "before") if failures else None
    wanted = expected.rpartition(".")[2]
    if len(failures) < len(report.ranks):
        fine = [rank for rank in report.sides("before") if rank not in failures]
        return Judgement(Verdict.NOT_AS_DECLARED, f"before.py should raise {wanted}, but did not on rank {fine[0]}")
    causes = _causes(failures)
    other = next((rank for rank, failure in causes.items() if wanted not in failure.bases), None)
    if other is not None:
        told = f"before.py should raise {wanted}, but rank {other} raised {_first_line(causes[other])}"
        return Judgement(Verdict.NOT_AS_DECLARED, f"{told}\n{causes[other].traceback}")
    return None


def _judge_after(report: Report) -> Judgement | None:
    return _judge_failures(report, "after") if _failures(report, "after") else None


def _failures(report: Report, side: str) -> dict[int, Failure]:
    return {rank: made.failure for rank, made in report.sides(side).items() if made.failure}


def _causes(failures: Mapping[int, Failure]) -> dict[int, Failure]:
    """The failures that are not only the echo of another rank's, the earliest first."""
    ordered = dict(sorted(failures.items(), key=lambda item: item[1].time))
    causes = {rank: failure for rank, failure in ordered.items() if not LEFT_BEHIND.search(failure.message)}
    return causes or ordered


def _judge_failures(report: Report, side: str) -> Judgement:
    failures = _failures(report, side)
    causes = _causes(failures)
    first, cause = next(iter(causes.items()))
    if len(causes) == len(report.ranks) and len({failure.type for failure in causes.values()}) == 1:
        return Judgement(Verdict.ERROR, f"{side}.py: every rank raised {_first_line(cause)}\n{cause.traceback}")
    others = [rank for rank in report.sides(side) if rank != first]
    ends = {rank: f"raised {_first_line(failures[rank])}" if rank in failures else "succeeded" for rank in others}
    ends = {first: f"raised {_first_line(cause)}", **ends}
    told = "; ".join(f"rank {rank} {end}" for rank, end in ends.items())
    return Judgement(Verdict.DESYNC, f"{side}.py: {told}\n{cause.traceback}")


def _first_line(failure: Failure) -> str:
    line = str(failure).splitlines()[0]
    return line if len(line) <= 160 else line[:157] + "..."


def _judge_before_evidence(report: Report) -> Judgement | None:
    for number, evidence in _expected_evidence(report):
        if not any(side.seen[number] for side in report.sides("before").values()):
            return Judgement(Verdict.NO_EVIDENCE, _lacking(report, evidence))
    return None


def _judge_after_evidence(report: Report) -> Judgement | None:
    for number, evidence in _expected_evidence(report):
        if evidence.kind == "deprecation":
            # torch warns about itself too; what counts is a warning that is gone.
            if report.fixture.after and not _deprecations(report, "before") - _deprecations(report, "after"):
                told = "after.py gives every deprecation warning that before.py gives"
                return Judgement(Verdict.STILL_LEGACY, f"{told}{_seen_instead(report)}")
        elif any(side.seen[number] for side in report.sides("after").values()):
            return Judgement(Verdict.STILL_LEGACY, f"after.py still shows {evidence}")
    return None


def _expected_evidence(report: Report) -> list[tuple[int, Evidence]]:
    """What is to be seen on this torch, each with its number in the header."""
    fails_here = _expected_failure(report) is not None
    facts = report.effective()
    return [
        (number, evidence)
        for number, evidence in enumerate(report.fixture.header.evidence)
        if (evidence.kind != "raises" or fails_here) and _holds(evidence.when, facts)
    ]


def _lacking(report: Report, evidence: Evidence) -> str:
    if evidence.kind == "deprecation":
        told = "before.py gives no deprecation warning, or filters it out"
        return f"{told}; if something else shows the old API, name it in the header ('# evidence: call NAME')"
    return f"before.py never showed {evidence}{_seen_instead(report)}"


def _deprecations(report: Report, side: str) -> set[str]:
    return {text for made in report.sides(side).values() for text in made.deprecations}


def _seen_instead(report: Report) -> str:
    shown = sorted(_deprecations(report, "before"))
    return f"; it warned: {' | '.join(shown)}" if shown else "; it gave no deprecation warning"


def _judge_values(report: Report) -> Judgement | None:
    if report.fixture.after is None or _failures(report, "before"):
        return _judge_oracle(report)
    facts = report.effective()
    anywhere = False
    for record in report.ranks:
        here = {**facts, "rank": record.rank}
        named = {differs.name for differs in report.fixture.header.differs if _holds(differs.when, here)}
        declared = named - {PLACEMENT}
        anywhere = anywhere or bool(named)
        for difference in record.differences:
            if difference.name not in declared:
                told = f"rank {record.rank}, {difference.where}: {difference.before} -> {difference.after}"
                return Judgement(Verdict.DIFFERS, told)
        missing = declared - {difference.name for difference in record.differences}
        if missing:
            told = f"rank {record.rank}: {sorted(missing)[0]!r} should differ here, but does not"
            return Judgement(Verdict.NOT_AS_DECLARED, told)
    placed = _judge_placement(report)
    if _is_declared(report) and placed is None:
        return Judgement(Verdict.NOT_AS_DECLARED, f"{PLACEMENT} should differ, but does not")
    return (None if anywhere else placed) or _judge_oracle(report)


def _is_declared(report: Report) -> bool:
    return any(differs.name == PLACEMENT for differs in report.fixture.header.differs)


def _judge_placement(report: Report) -> Judgement | None:
    if report.fixture.header.target in _ASKS_OTHERS:
        return None
    before, after = report.sides("before"), report.sides("after")
    for rank, side in before.items():
        if side.placements != after[rank].placements:
            old, new = _first_difference(side.placements, after[rank].placements)
            return Judgement(Verdict.DIFFERS, f"rank {rank}, {PLACEMENT}: {old} -> {new}")
    return None


def _first_difference(old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    for one, other in zip(old, new):
        if one != other:
            return one, other
    shorter = min(len(old), len(new))
    return next(iter(old[shorter:]), "nothing more"), next(iter(new[shorter:]), "nothing more")


def _judge_oracle(report: Report) -> Judgement | None:
    side = "after" if report.fixture.after is not None else "before"
    for rank, made in report.sides(side).items():
        if made.oracle:
            before = report.sides("before").get(rank)
            both = side == "after" and before is not None and made.oracle[0] in before.oracle
            programs = "before.py and after.py" if both else f"{side}.py"
            return Judgement(Verdict.DIFFERS, f"{programs}, rank {rank}: {made.oracle[0]}")
    return None


def _fine(report: Report) -> Judgement:
    if report.fixture.after is None:
        return Judgement(Verdict.AS_DECLARED, "nothing is rewritten here; before.py shows its evidence")
    if _failures(report, "before"):
        cause = next(iter(_failures(report, "before").values()))
        return Judgement(Verdict.FIXED, f"before.py raises {_first_line(cause)}")
    differing = sorted({difference.name for record in report.ranks for difference in record.differences})
    differing += [PLACEMENT] if _is_declared(report) else []
    if differing:
        return Judgement(Verdict.AS_DECLARED, f"differs in {', '.join(map(repr, differing))}")
    return Judgement(Verdict.SAME)


def _broken(report: Report) -> Judgement:
    """A rank did not come to the end of this point: it died, or it was stopped because it hung."""
    unfinished = [record for record in report.ranks if not record.finished]
    sides = [record.started for record in unfinished if record.started]
    if not sides:
        return Judgement(Verdict.ERROR, "the ranks did not reach this scenario: the launch ended before")
    where = f"{sides[0]}.py"
    silent = [record for record in unfinished if record.started is None or record.started not in record.sides]
    crash = _crash(report, [record.rank for record in unfinished], silent)
    if crash:
        return Judgement(Verdict.CRASH, f"{where}: {crash}\n{_evidence_of(report)}".rstrip())
    told = f"{where}: rank {', '.join(str(record.rank) for record in silent) or 'unknown'} did not finish"
    failures = _all_failures(report)
    if failures:
        rank, failure = next(iter(_causes(failures).items()))
        told += f"; rank {rank} raised {_first_line(failure)}"
    return Judgement(Verdict.HANG, f"{told}\n{_evidence_of(report)}".rstrip())


def _all_failures(report: Report) -> dict[int, Failure]:
    return {rank: failure for side in SIDES for rank, failure in _failures(report, side).items()}


def _crash(report: Report, unfinished: Sequence[int], silent: Sequence[RankRecord]) -> str | None:
    """Which rank died and how, unless one ran out of time."""
    if any(_HANG.search(told) for told in (*report.stacks.values(), report.output)):
        return None
    for rank in unfinished:
        end, fatal = report.exits.get(rank), _FATAL.search(report.stacks.get(rank, ""))
        if end is not None and not end.asked and end.code < 0:
            return f"rank {rank} was ended by {signal.Signals(-end.code).name}"
        if fatal and not (end and end.asked):
            return f"rank {rank} died: {fatal.group(1)}"
        if end is not None and not end.asked and not end.abandoned:
            return f"rank {rank} ended its process with exit code {end.code}"
    # The elastic launcher tells no exit codes, but whoever it stops here leaves its stacks. Of a rank on another
    # machine nothing is known but that its connections broke.
    lost = any(_LOST.search(failure.message) for failure in _all_failures(report).values())
    for record in silent:
        if record.rank not in report.exits and not report.stacks.get(record.rank) and (record.started or lost):
            return f"rank {record.rank} is gone, without a message"
    return None


def _evidence_of(report: Report) -> str:
    parts = [f"rank {rank}:\n{text}" for rank, text in sorted(report.stacks.items()) if text]
    for record in report.ranks:
        parts += [f"rank {record.rank}:\n{side.failure.traceback}" for side in record.sides.values() if side.failure]
    return "\n".join([*parts, report.output]).strip()
