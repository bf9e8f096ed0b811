"""Whether the ranks of one run did the same collectives, in each of their groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from fsdp_migrate.prove.records import Event, Rank, Run

# Between two ranks of a group only.
_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
# What has to agree, where both ranks know it: what a rank gives to a collective is not always as long as a peer's.
_TRAITS = ("dtype", "numel", "root")

Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Disagreement:
    """The first place in one group where two ranks part; None for a rank that did no more."""

    group: tuple[int, ...]
    position: int
    ranks: tuple[int, int]
    events: tuple[Event | None, Event | None]

    @property
    def mismatch(self) -> bool:
        """Whether both did something, but not the same."""
        return None not in self.events

    def __str__(self) -> str:
        told = "; ".join(f"rank {rank}: {_shown(event)}" for rank, event in zip(self.ranks, self.events))
        members = ", ".join(map(str, self.group))
        return f"collective {self.position + 1} of the group of ranks {members}: {told}"


def disagreement(run: Run) -> Disagreement | None:
    """Where the ranks of a run part, if they do; a rank that was cut off may have done less than others."""
    done = {number: _by_group(rank) for number, rank in run.ranks.items()}
    missing = None
    for group in sorted({group for groups in done.values() for group in groups}):
        here = [number for number in group[1] if number in run.ranks]
        for number in here[1:]:
            found = _first(group, (here[0], number), done, run)
            if found and found.mismatch:
                return found
            missing = missing or found
    return missing


def _by_group(rank: Rank) -> dict[Group, list[Event]]:
    """The collectives of one rank; groups with the same name and other members are not the same."""
    members: dict[str, tuple[int, ...]] = {}
    done: dict[Group, list[Event]] = defaultdict(list)
    for event in rank.of("group", "collective"):
        if event.kind == "group":
            members[str(event.data["id"])] = event.data["ranks"]
        elif event.data["kind"] not in _POINT_TO_POINT:
            name = str(event.data["group"])
            done[(name, members.get(name, ()))] += [event] * int(event.data.get("times", 1))
    return done


def _first(
    group: Group, ranks: tuple[int, int], done: dict[int, dict[Group, list[Event]]], run: Run
) -> Disagreement | None:
    one, other = (done[rank].get(group, []) for rank in ranks)
    for position, (first, second) in enumerate(zip_longest(one, other)):
        if first is None or second is None:
            short = ranks[0 if first is None else 1]
            # Who was stopped might have come to it.
            closed = run.ranks[short].closed
            return Disagreement(group[1], position, ranks, (first, second)) if closed else None
        if not _agree(first, second):
            return Disagreement(group[1], position, ranks, (first, second))
    return None


def _agree(one: Event, other: Event) -> bool:
    def known() -> Iterator[tuple[object, object]]:
        yield one.data["kind"], other.data["kind"]
        for trait in _TRAITS:
            pair = one.data.get(trait), other.data.get(trait)
            if None not in pair:
                yield pair

    return all(first == second for first, second in known())


def _shown(event: Event | None) -> str:
    if event is None:
        return "none, it came to its end"
    told = str(event.data["kind"])
    if event.data.get("dtype") is not None:
        numel = event.data.get("numel")
        told += f" of {event.data['dtype']}" + (f"[{numel}]" if numel is not None else "")
    if event.data.get("root") is not None:
        told += f" from rank {event.data['root']}"
    return f"{told} at {event.at}" if event.at else told
