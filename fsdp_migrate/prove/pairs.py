"""What two runs did at the same place: their events, rank by rank, in the order of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fsdp_migrate.prove.records import Event, Rank, Run

# What a verdict rests on.
COMPARED = ("loss", "norm", "step", "save", "load", "final")
_BY_NAME = ("save", "load")


class Moment(NamedTuple):
    """When something happened: the steps before it, and its place among what a rank did between two steps."""

    steps: int
    position: int


class Key(NamedTuple):
    """What an event is the same by in two runs: the `nth` of its kind and name in a step."""

    kind: str
    steps: int
    name: str
    nth: int


@dataclass(frozen=True)
class Pair:
    """An event of each run on one rank; None where a run has none."""

    rank: int
    key: Key
    moment: Moment
    before: Event | None
    after: Event | None

    def side(self, after: bool) -> Event | None:
        """The event of one run."""
        return self.after if after else self.before


@dataclass(frozen=True)
class Pairs:
    """All pairs of two runs, and those of all ranks that belong together."""

    before: Run
    after: Run
    ordered: tuple[Pair, ...]
    by_key: Mapping[Key, tuple[Pair, ...]]

    def run(self, after: bool) -> Run:
        """One of the two runs."""
        return self.after if after else self.before


def pairs(before: Run, after: Run) -> Pairs:
    """Pair the events of two runs, ranks that only one of them has included."""
    found: list[Pair] = []
    for number in sorted({*before.ranks, *after.ranks}):
        found += _of_rank(number, before.ranks.get(number, Rank(number)), after.ranks.get(number, Rank(number)))
    found.sort(key=lambda pair: (pair.moment, pair.rank))
    by_key: dict[Key, list[Pair]] = defaultdict(list)
    for pair in found:
        by_key[pair.key].append(pair)
    return Pairs(before, after, tuple(found), {key: tuple(members) for key, members in by_key.items()})


def _of_rank(number: int, before: Rank, after: Rank) -> Iterator[Pair]:
    old, new = _keyed(before), _keyed(after)
    for gone, come in _renamed([key for key in old if key not in new], [key for key in new if key not in old]):
        new[gone] = new.pop(come)
    for key, (moment, event) in old.items():
        other = new.pop(key, None)
        yield Pair(number, key, moment, event, other[1] if other else None)
    for key, (moment, event) in new.items():
        yield Pair(number, key, moment, None, event)


def _keyed(rank: Rank) -> dict[Key, tuple[Moment, Event]]:
    keyed: dict[Key, tuple[Moment, Event]] = {}
    met: Counter[object] = Counter()
    for event in rank.of(*COMPARED):
        # Where a program ends is no matter of its final state.
        steps = 0 if event.kind == "final" else event.step
        name = _name(event)
        count, position = met[(event.kind, steps, name)], met[event.step]
        met[(event.kind, steps, name)] += 1
        met[event.step] += 1
        keyed[Key(event.kind, steps, name, count)] = (Moment(event.step, position), event)
    return keyed


def _name(event: Event) -> str:
    if event.kind == "final":
        return f"{event.data['of']} {event.data['index']}"
    return event.data["path"] or "" if event.kind in _BY_NAME else ""


def _renamed(gone: list[Key], come: list[Key]) -> Iterator[tuple[Key, Key]]:
    """The files of one step that have another name in each run, in their order."""
    for key in gone:
        if key.kind in _BY_NAME:
            other = next((new for new in come if (new.kind, new.steps) == (key.kind, key.steps)), None)
            if other is not None:
                come.remove(other)
                yield key, other
