"""From a comparison to one verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdp_migrate.prove import telling
from fsdp_migrate.prove.compare import Comparison, Coverage, PhaseComparison
from fsdp_migrate.prove.differences import Difference
from fsdp_migrate.prove.endings import ending
from fsdp_migrate.prove.records import Run
from fsdp_migrate.prove.subject import Subject
from fsdp_migrate.verify.verdicts import Judgement, Verdict

_UNSEEDED = "seed the program, or give --deterministic: it seeds both and asks torch for deterministic algorithms"
_SEEDED = (
    "--deterministic did not help: look for generators of the program's own, times, and orders of files or threads"
)
_SEEN = (Verdict.CRASH, Verdict.DESYNC, Verdict.HANG, Verdict.DIFFERS)

_UNTRAINED = "no optimizer took a step: start the program so that it trains"


@dataclass(frozen=True)
class Conclusion:
    """The verdict, where it was reached, and that of each phase; the first line of a detail is the short of it."""

    verdict: Verdict
    detail: str
    phase: str
    judgements: tuple[tuple[str, Judgement], ...]
    comparison: Comparison
    subject: Subject | None = None

    @property
    def exit_code(self) -> int:
        """0 if both versions do the same, else 1."""
        return 0 if self.verdict.fine else 1


def judge(comparison: Comparison, missing_checkpoint: str | None = None) -> Conclusion:
    """The verdict on a migration; `missing_checkpoint` says why nothing could be resumed where that was asked.

    A phase without evidence says nothing, so what is seen in another one counts before it, the first in time. A module
    from outside its copy is a doubt about everything that was seen.
    """
    judgements = tuple((found.phase.name, _phase(found)) for found in comparison.phases)
    doubt = next((_outside(found) for found in comparison.phases if _outside(found)), None)
    if doubt:
        return Conclusion(Verdict.NO_EVIDENCE, doubt, "", judgements, comparison)
    for verdicts in (_SEEN, (Verdict.NO_EVIDENCE,)):
        for name, judgement in judgements:
            if judgement.verdict in verdicts:
                return Conclusion(judgement.verdict, judgement.detail, name, judgements, comparison)
    lacking = next(_lacking(comparison, missing_checkpoint), None)
    verdict = Verdict.NO_EVIDENCE if lacking else Verdict.SAME
    return Conclusion(verdict, lacking or "", "", judgements, comparison)


def _lacking(comparison: Comparison, missing_checkpoint: str | None) -> Iterator[str]:
    """What keeps phases without a difference from showing anything."""
    if not comparison.phases:
        yield "nothing ran"
    if not _any_changed_line_ran(comparison.coverage):
        count = sum(known for _, known in comparison.coverage.lines)
        yield f"none of the {count} changed lines ran: start the program so that it gets to one of them"
    if missing_checkpoint:
        yield missing_checkpoint


def _any_changed_line_ran(coverage: Coverage) -> bool:
    return not coverage.lines or coverage.ran > 0


def _phase(found: PhaseComparison) -> Judgement:
    return _judge_before(found) or _judge_after(found) or _judge_evidence(found) or Judgement(Verdict.SAME)


def _no(detail: str) -> Judgement:
    return Judgement(Verdict.NO_EVIDENCE, detail)


def _judge_before(found: PhaseComparison) -> Judgement | None:
    """Before has to run, twice: nothing can be said about what is compared with a program that does not."""
    phase = found.phase
    for run in (phase.before, phase.again):
        broken = ending(run) if run is not None else None
        # Ranks may part in a program that works, such as one that ends while a message is on its way.
        if run is not None and broken is not None and not (broken.verdict is Verdict.DESYNC and run.completed):
            return _no(f"before itself does not run to its end: {broken.verdict.value}: {broken.detail}")
    if phase.after is not None:
        return None
    untrained = () if phase.before.steps else (_UNTRAINED,)
    return _no([*_unreadable(found), *_faults(found), *untrained, "after was not run"][0])


def _judge_after(found: PhaseComparison) -> Judgement | None:
    phase = found.phase
    assert phase.after is not None
    broken = ending(phase.after)
    # What before does too was not brought by the migration.
    if broken is None or (broken.verdict is Verdict.DESYNC and phase.after.completed and ending(phase.before)):
        return None
    earlier = None if found.training_noise else next(filter(partial(_is_earlier, phase.after), found.differences), None)
    if earlier is None:
        return broken
    first, _, more = broken.detail.partition("\n")
    return Judgement(
        broken.verdict, "\n".join([first, f"before that: {telling.line(earlier)}", *([more] if more else [])])
    )


def _is_earlier(after: Run, difference: Difference) -> bool:
    """Whether a difference is not only that a rank came no further."""
    events = after.ranks[difference.rank].events if difference.rank in after.ranks else ()
    return difference.pair.after is not None or (bool(events) and difference.moment.steps < events[-1].step)


def _judge_evidence(found: PhaseComparison) -> Judgement | None:
    """What keeps the records from being compared, then what differs, then what they lack."""
    for told in (*_unreadable(found), *_faults(found)):
        return _no(told)
    if found.training_noise is not None:
        return _no(_noisy(found))
    if found.differences:
        return Judgement(Verdict.DIFFERS, "\n".join(telling.lines(found.differences)))
    for told in _incomplete(found):
        return _no(told)
    return None


def _runs(found: PhaseComparison) -> list[tuple[str, Run]]:
    phase = found.phase
    runs = {"before": phase.before, "before, the second time": phase.again, "after": phase.after}
    return [(name, run) for name, run in runs.items() if run is not None]


def _outside(found: PhaseComparison) -> str | None:
    for name, run in _runs(found):
        for rank, event in run.of("outside"):
            told = f"{event.data['module']} came from {event.data['file']}, which is not the copy that should run"
            return f"{name}, rank {rank.number}: the module {told}"
    return None


def _unreadable(found: PhaseComparison) -> Iterator[str]:
    for name, run in _runs(found):
        yield from (f"the record of {name} cannot be used: {problem}" for problem in run.problems)


def _faults(found: PhaseComparison) -> Iterator[str]:
    for name, run in _runs(found):
        for rank, event in run.of("fault"):
            yield f"{name}, rank {rank.number}: the recorder failed in {event.data['where']}: {event.data['text']}"


def _noisy(found: PhaseComparison) -> str:
    noise = found.training_noise
    assert noise is not None
    told = [f"two runs of before differ, so nothing is claimed: {telling.line(noise.measured())}"]
    told.append(_SEEDED if any(e.data.get("deterministic") for _, e in found.phase.before.of("start")) else _UNSEEDED)
    # Values tell nothing now.
    besides = [difference for difference in found.differences if difference.measure is None]
    return "\n".join([*told, *(f"seen besides: {line}" for line in telling.lines(besides))])


def _incomplete(found: PhaseComparison) -> Iterator[str]:
    phase = found.phase
    assert phase.after is not None
    if found.unknown:
        first = telling.line(found.unknown[0])
        yield f"the values of {len(found.unknown)} tensors were not kept, so they cannot be compared: {first}"
    if not phase.before.steps:
        yield _UNTRAINED
    if not found.counts.get("final"):
        yield "no final state was recorded"
    if phase.resumes and not any(phase.before.of("load")):
        yield "the second start of before loaded no checkpoint: give in --resume-args what makes the program load one"
