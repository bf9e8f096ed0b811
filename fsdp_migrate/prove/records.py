"""The record of one run of the user's program: a folder that the recorder and the launcher wrote, read and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdp_migrate.prove import trees

FORMAT = 1

# What an event of a kind has to tell; more is left alone.
_FIELDS: dict[str, tuple[str, ...]] = {
    "start": ("format", "rank", "world"),
    "loss": ("value", "dtype"),
    "norm": ("value",),
    "step": ("lr", "optimizer", "skipped"),
    "save": ("api", "path", "tree"),
    "load": ("api", "path", "tree"),
    "final": ("of", "index", "tree"),
    "group": ("id", "ranks"),
    "collective": ("group", "kind"),
    "cost": ("seconds", "peak"),
    "warning": ("category", "text"),
    "closing": (),
    "covered": ("files",),
    "outside": ("module", "file"),
    "fault": ("where", "text"),
    "error": ("type", "text"),
    "end": ("reason",),
}


@dataclass(frozen=True)
class Place:
    """A line of the user's project."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Event:
    """Something that a rank did; `step` counts the optimizer steps before it, `number` its place in the record."""

    kind: str
    number: int
    step: int
    at: Place | None
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Rank:
    """What is known of one rank; `exit` is negative for a signal, None if unknown or if the launcher ended it."""

    number: int
    events: tuple[Event, ...] = ()
    exit: int | None = None
    output: str = ""
    stacks: str = ""

    def of(self, *kinds: str) -> Iterator[Event]:
        """The events of some kinds, in their order."""
        return (event for event in self.events if event.kind in kinds)

    @property
    def ended(self) -> bool:
        """Whether the program came to its end here, or to the step that it had to stop after."""
        return any(self.of("end"))

    @property
    def failed(self) -> bool:
        """Whether it fell. A signal behind its end is torch's: gloo's threads abort where the interpreter goes away."""
        return bool(self.exit) and not (self.ended and self.exit is not None and self.exit < 0)

    @property
    def closed(self) -> bool:
        """Whether it did all its collectives: it ended, or was about to leave its process group."""
        last = next((event.kind for event in reversed(self.events) if event.kind in ("collective", "closing")), None)
        return self.ended or last == "closing"


@dataclass(frozen=True)
class Run:
    """One start of the program; `problems` are lines that say what of its record cannot be used."""

    folder: Path
    ranks: Mapping[int, Rank]
    exit: int | None = 0
    timed_out: bool = False
    problems: tuple[str, ...] = ()

    def of(self, *kinds: str) -> Iterator[tuple[Rank, Event]]:
        """The events of some kinds of all ranks, rank by rank."""
        return ((rank, event) for rank in self.ranks.values() for event in rank.of(*kinds))

    @property
    def completed(self) -> bool:
        """Whether all ranks came to their end."""
        fell = any(rank.failed for rank in self.ranks.values())
        all_ended = bool(self.ranks) and all(rank.ended for rank in self.ranks.values())
        return not (self.timed_out or fell or (self.exit and not all_ended))

    @property
    def steps(self) -> int:
        """The steps of the first optimizer that a rank took; the most where ranks differ."""
        return max((sum(_is_counted(event) for event in rank.of("step")) for rank in self.ranks.values()), default=0)


def _is_counted(step: Event) -> bool:
    return step.data["optimizer"] == 0 and not step.data["skipped"]


def read(folder: Path) -> Run:
    """The record in a folder. What is missing, broken or of another version is told in `problems`."""
    try:
        launch = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
        expected = {int(rank): code for rank, code in launch["ranks"].items()}
        stopped = set(launch.get("stopped", ()))
        hindrances = [str(told) for told in launch.get("hindrances", ())]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return Run(folder, {}, None, False, (f"launch.json: cannot be read ({_told(error)}): the run did not end",))
    if launch.get("format") != FORMAT:
        return Run(folder, {}, None, False, (_other_version("launch.json", launch.get("format")),))
    problems = hindrances
    ranks = {}
    for number, code in sorted(expected.items()):
        events = _events(folder / f"rank-{number}.jsonl", problems)
        output, stacks = _text(folder / f"output-{number}.txt"), _text(folder / f"stacks-{number}.txt")
        ranks[number] = Rank(number, events, None if number in stopped else code, output, stacks)
    return Run(folder, ranks, launch.get("exit"), bool(launch.get("timed_out")), tuple(problems))


def _events(path: Path, problems: list[str]) -> tuple[Event, ...]:
    """The events of one rank, as far as they can be read."""
    events: list[Event] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        problems.append(f"{path.name}: cannot be read ({_told(error)}): this rank recorded nothing")
        return ()
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = _event(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{path.name}, line {number}: is no event ({_told(error)})")
            break
        if event.kind == "start" and event.data["format"] != FORMAT:
            problems.append(_other_version(path.name, event.data["format"]))
            return ()
        if event.number != len(events) + 1:
            problems.append(f"{path.name}, line {number}: event {event.number} follows event {len(events)}")
            break
        events.append(event)
    else:
        if lines[-1]:
            problems.append(f"{path.name}, line {len(lines)}: is cut off")
        elif not events or events[-1].kind != "end":
            problems.append(
                f"{path.name}: has no end: the program left without one (it was killed, or ended outside of Python)"
            )
    if events and events[0].kind != "start":
        problems.append(f"{path.name}: does not begin with its start")
    return tuple(events)


def _event(raw: dict[str, Any]) -> Event:
    kind = str(raw["e"])
    data = {key: value for key, value in raw.items() if key not in ("e", "n", "step", "at")}
    for name in _FIELDS[kind]:
        data[name] = _CHECKS.get(name, _kept)(data[name])
    at = Place(str(raw["at"][0]), int(raw["at"][1])) if raw.get("at") else None
    return Event(kind, int(raw["n"]), int(raw.get("step", 0)), at, data)


def _kept(value: Any) -> Any:
    return value


def _scalar(value: Any) -> Any:
    """A hex float, or what stands for a tensor of several elements."""
    return value if isinstance(value, dict) and value["digest"] else float.fromhex(value).hex()


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "tree": trees.parse,
    "value": _scalar,
    "lr": lambda rates: [float(rate) for rate in rates],
    "ranks": lambda ranks: tuple(map(int, ranks)),
    "files": lambda files: {str(path): frozenset(map(int, lines)) for path, lines in files.items()},
    "seconds": float,
    "peak": float,
}


def _told(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]


def _other_version(name: str, found: object) -> str:
    return f"{name}: has the format {found!r}, this version reads {FORMAT}: run `prove` again"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
