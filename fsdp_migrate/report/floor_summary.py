"""One line for a project whose stated lower bound of torch is too low: how many findings a higher one settles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise

from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import Statement


class FloorSummary(NamedTuple):
    """How many findings of a project each lower bound settles, hints excluded, lowest bound first."""

    stated: Statement
    findings: int
    settled: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """The bound that settles most by itself, and the lowest that settles all that a bound can."""
        counts = [0, *(count for _, count in self.settled)]
        gains = [after - before for before, after in pairwise(counts)]
        (least, count), last = self.settled[gains.index(max(gains))], self.settled[-1]
        of = f"{self.findings} finding{'s' * (self.findings != 1)}"
        more = "" if least == last[0] else f", >={last[0]} would settle {last[1]}"
        return f"{self.stated}; >={least} would settle {count} of {of}{more}"


def summaries(findings: Iterable[Finding], stated: Mapping[str, Statement]) -> tuple[FloorSummary, ...]:
    """The summaries of the projects of some findings; `stated` is by the path of a file."""
    real = [finding for finding in findings if finding.severity is not Severity.HINT and finding.path in stated]
    found = []
    for statement, number in sorted(
        Counter(stated[finding.path] for finding in real).items(), key=lambda one: str(one[0])
    ):
        least = Counter(f.settled for f in real if f.settled is not None and stated[f.path] == statement)
        floors = sorted(least, key=_release)
        if floors:
            counts = accumulate(least[floor] for floor in floors)
            found.append(FloorSummary(statement, number, tuple(zip(floors, counts))))
    return tuple(found)


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
