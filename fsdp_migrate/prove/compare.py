"""What the runs of both versions have in common and what not: noise first, then before against after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fsdp_migrate.prove import differences, tolerance, trees
from fsdp_migrate.prove.differences import Difference
from fsdp_migrate.prove.pairs import Pairs, pairs
from fsdp_migrate.prove.records import Run
from fsdp_migrate.prove.tolerance import BITWISE, DRIFT, Spread, Tolerance

TOLD = 8  # differences that are measured to be told
# If these differ in two runs of the same code, nothing can be said about another code.
_TRAINING = ("loss", "norm", "step", "final")


@dataclass(frozen=True)
class Phase:
    """A start of both versions: `before` and `again` are two runs of the old one, `control` is one moved by an ulp.

    A run that was not made is None. With `old_code`, `after` is the old version too, on what the new one saved.
    """

    name: str
    before: Run
    again: Run | None = None
    after: Run | None = None
    control: Run | None = None
    resumes: bool = False
    old_code: bool = False


@dataclass(frozen=True)
class Changed:
    """The lines that the migration touches, by file, in the old and in the new version."""

    before: Mapping[str, frozenset[int]] = field(default_factory=dict)
    after: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Coverage:
    """How many of the changed lines ran, by file: (ran, all) of the old and of the new version."""

    before: Mapping[str, tuple[int, int]]
    after: Mapping[str, tuple[int, int]]

    @property
    def lines(self) -> list[tuple[int, int]]:
        """The same for all files of both versions."""
        return [*self.before.values(), *self.after.values()]

    @property
    def ran(self) -> int:
        """All changed lines that ran."""
        return sum(ran for ran, _ in self.lines)


@dataclass(frozen=True)
class PhaseComparison:
    """One phase: what was compared (a count for each kind), what differs in the order of time, and what is noise."""

    phase: Phase
    counts: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    within: tuple[Difference, ...] = ()
    unknown: tuple[Difference, ...] = ()
    noise: tuple[Difference, ...] = ()

    @property
    def training_noise(self) -> Difference | None:
        """The first place in the training itself that two runs of the old version do not share."""
        return next((noise for noise in self.noise if noise.kind in _TRAINING), None)


@dataclass(frozen=True)
class Comparison:
    """All phases, the changed lines that ran, and how far the versions might be apart."""

    phases: tuple[PhaseComparison, ...]
    coverage: Coverage
    tolerance: Tolerance


def compare(phases: Sequence[Phase], changed: Changed | None = None, allowed: Tolerance = BITWISE) -> Comparison:
    """Compare the runs of each phase; the phases are in the order of time."""
    found = tuple(_phase(phase, allowed) for phase in phases)
    return Comparison(found, _coverage(phases, changed or Changed()), allowed)


def _phase(phase: Phase, allowed: Tolerance) -> PhaseComparison:
    if phase.after is None:
        return PhaseComparison(phase)
    noise, spreading = _noise(phase, allowed)
    if phase.control is not None:
        control = tolerance.judge(differences.find(pairs(phase.before, phase.control)), DRIFT, Spread(()))
        spreading += [*control.beyond, *control.within]
    both = pairs(phase.before, phase.after)
    places = _Places(noise)
    found = (difference for difference in differences.find(both) if not places.cover(difference))
    judged = tolerance.judge(found, allowed, Spread(spreading))
    return PhaseComparison(
        phase,
        _counts(both),
        tolerance.measured(judged.beyond, TOLD),
        judged.within,
        judged.unknown,
        tolerance.measured(noise, TOLD),
    )


def _noise(phase: Phase, allowed: Tolerance) -> tuple[tuple[Difference, ...], list[Difference]]:
    """What two runs of the old version do not share, and what tells how far they drift apart where that is allowed."""
    if phase.again is None:
        return (), []
    judged = tolerance.judge(differences.find(pairs(phase.before, phase.again)), allowed, Spread(()))
    noise = sorted((*judged.beyond, *judged.unknown), key=lambda difference: (difference.moment, difference.rank))
    first = min(
        (difference for difference in (*noise, *judged.within) if difference.kind in _TRAINING),
        key=lambda difference: (difference.moment, difference.rank),
        default=None,
    )
    if not allowed.drift or not any(first is difference for difference in judged.within):
        return tuple(noise), []
    # What began within rounding goes on as rounding does.
    drift = [difference for difference in (*noise, *judged.within) if difference.deviation is not None]
    return tuple(difference for difference in noise if difference.deviation is None), drift


class _Places:
    """Where two runs of the same code differ: there, and at the same place in files of the same name.

    Another step may agree by chance, as times do that are rounded to a second.
    """

    def __init__(self, noise: Iterable[Difference]) -> None:
        self._traits = {(where, _trait(d)) for d in noise for where in _wheres(d, d.path)}

    def cover(self, difference: Difference) -> bool:
        """Whether a difference to another code says nothing there."""
        if any((where, _trait(difference)) in self._traits for where in _wheres(difference, difference.path)):
            return True
        # Nothing is known of what lies below.
        above = (difference.path[:length] for length in range(len(difference.path) + 1))
        return any(
            (where, trait) in self._traits
            for path in above
            for where in _wheres(difference, path)
            for trait in ("presence", "type")
        )


def _wheres(difference: Difference, path: tuple[str, ...]) -> tuple[tuple[object, ...], ...]:
    key = difference.pair.key
    exactly = (difference.rank, key, path)
    return (exactly, (key.kind, key.name, path)) if key.name else (exactly,)


def _trait(difference: Difference) -> str:
    return "value" if difference.trait == "layout" else difference.trait


def _counts(both: Pairs) -> dict[str, int]:
    """How many events of each kind both runs have, and how many tensors there are in them."""
    counts: Counter[str] = Counter()
    for pair in both.ordered:
        if pair.before is not None and pair.after is not None:
            counts[pair.key.kind] += 1
            if "tree" in pair.before.data:
                counts["tensors"] += trees.tensors(pair.before.data["tree"])
    return dict(counts)


def _coverage(phases: Sequence[Phase], changed: Changed) -> Coverage:
    old = [run for phase in phases for run in (phase.before, phase.again, phase.after if phase.old_code else None)]
    new = [phase.after for phase in phases if not phase.old_code]
    return Coverage(_ran(old, changed.before), _ran(new, changed.after))


def _ran(runs: Iterable[Run | None], changed: Mapping[str, frozenset[int]]) -> dict[str, tuple[int, int]]:
    ran: dict[str, set[int]] = {}
    for _, event in (found for run in runs if run is not None for found in run.of("covered")):
        for path, lines in event.data["files"].items():
            ran.setdefault(path, set()).update(lines)
    return {path: (len(lines & ran.get(path, set())), len(lines)) for path, lines in changed.items() if lines}
