"""How a run ended that did not come to its end: which rank fell, which ranks part in their collectives, who waits."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from fsdp_migrate.prove.collectives import Disagreement, disagreement
from fsdp_migrate.prove.records import Rank, Run
from fsdp_migrate.verify.verdicts import LEFT_BEHIND, Judgement, Verdict

# What a communication library says of collectives that do not fit together: not the cause of anything.
_OF_COLLECTIVES = re.compile(r"gloo|nccl|enforce fail|mismatch between collectives", re.IGNORECASE)
SHOWN = 300  # characters of what a rank printed last
_TRACEBACK = "Traceback (most recent call last):"
# torch marks what a rank prints last.
_MARK = re.compile(r"^\[rank\d+\]:? ?", re.MULTILINE)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(: .*)?$")


@dataclass(frozen=True)
class Failure:
    """How one rank fell: the exception with its traceback, or the exit code or signal."""

    rank: int
    told: str
    traceback: str

    @property
    def is_echo(self) -> bool:
        """Whether it tells no more than that something happened to another rank."""
        return bool(LEFT_BEHIND.search(self.told) or _OF_COLLECTIVES.search(self.told))


def ending(run: Run) -> Judgement | None:
    """CRASH, DESYNC or HANG; None if all ranks came to their end, and did the same collectives.

    An exception of the program is the cause of whatever else is seen; else ranks whose collectives differ are that of
    a timeout, an abort or a broken connection.
    """
    failures = [failure for rank in run.ranks.values() for failure in _failure(rank)]
    parted = disagreement(run)
    causes = [failure for failure in failures if not failure.is_echo and not (parted and not failure.traceback)]
    if causes:
        return _crash(run, causes, parted)
    if parted:
        ends = [f"rank {failure.rank}: {failure.told}" for failure in failures if not failure.traceback]
        return Judgement(Verdict.DESYNC, "\n".join([str(parted), *ends, *_tracebacks(failures), *_stacks(run)]))
    if run.timed_out:
        where = "; ".join(_last_seen(rank) for rank in run.ranks.values())
        return Judgement(Verdict.HANG, "\n".join([where or "no rank recorded anything", *_stacks(run)]))
    if failures:
        return _crash(run, failures, None)
    if not run.completed:
        return Judgement(Verdict.CRASH, f"the launcher ended with exit code {run.exit}")
    return None


def _crash(run: Run, failures: list[Failure], parted: Disagreement | None) -> Judgement:
    first = failures[0]
    others = [failure.rank for failure in failures[1:] if failure.told == first.told]
    ranks = f"ranks {', '.join(map(str, [first.rank, *others]))}" if others else f"rank {first.rank}"
    told = [f"{ranks}, {_when(run.ranks[first.rank])}: {first.told}"]
    return Judgement(Verdict.CRASH, "\n".join([*told, *_tracebacks([first]), *([str(parted)] if parted else [])]))


def _failure(rank: Rank) -> list[Failure]:
    raised = next(rank.of("error"), None)
    if not rank.failed and not (raised and rank.exit is None):
        return []
    if raised is not None:
        told = f"{raised.data['type']}: {raised.data['text']}".splitlines()[0]
        return [Failure(rank.number, told, str(raised.data.get("traceback", "")))]
    assert rank.exit is not None
    traceback = _traceback(rank.output)
    if rank.exit > 0 and traceback:
        return [Failure(rank.number, _exception(traceback), traceback)]
    told = _exit(rank.exit)
    last = next((line.strip() for line in reversed(rank.output.splitlines()) if line.strip()), "")
    # Python itself, a command line that is wrong, and test runners print why, without a traceback.
    return [
        Failure(rank.number, f"{told}; it printed last: {last[:SHOWN]}" if rank.exit > 0 and last else told, traceback)
    ]


def _exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was ended by {known.get(-code, f'signal {-code}')}"


def _traceback(output: str) -> str:
    """The last traceback that was printed."""
    text = _MARK.sub("", output)
    if _TRACEBACK not in text:
        return ""
    lines = text[text.rindex(_TRACEBACK) :].splitlines()
    ends = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith((" ", "\t"))), len(lines) - 1)
    return "\n".join(lines[: ends + 1])


def _exception(traceback: str) -> str:
    """The exception that a traceback ends with."""
    last = traceback.rstrip().splitlines()[-1]
    return last if _EXCEPTION.match(last) else "raised an exception"


def _tracebacks(failures: list[Failure]) -> list[str]:
    return [f"rank {failure.rank}:\n{failure.traceback.rstrip()}" for failure in failures if failure.traceback]


def _stacks(run: Run) -> list[str]:
    return [f"stacks of rank {rank.number}:\n{rank.stacks.rstrip()}" for rank in run.ranks.values() if rank.stacks]


def _when(rank: Rank) -> str:
    steps = rank.events[-1].step if rank.events else 0
    return f"after step {steps}" if steps else "before the first step was taken"


def _last_seen(rank: Rank) -> str:
    if rank.closed:
        return f"rank {rank.number} came to its end"
    last = next((event for event in reversed(rank.events) if event.at is not None), None)
    where = f", last seen at {last.at} ({last.data.get('kind', last.kind)})" if last else ""
    return f"rank {rank.number} did not end, {_when(rank)}{where}"
