"""What the parent and the ranks tell each other: a plan in, one line per event and rank out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SIDES = ("before", "after")
AXES = ("use_orig_params", "strategy", "optimizer")  # those that differ within a launch
REPEATS = "does not depend on"  # how the reason starts for not running a point again
# Why a rank leaves, told in a file: a scenario may end its process with any exit code.
ABANDONED = "abandoned"  # its peers do not answer
FINISHED = "finished"  # it came to the end of the plan


@dataclass(frozen=True)
class Look:
    """Evidence to look for (see `fsdp_migrate.verify.fixtures.Evidence`)."""

    kind: str
    text: str = ""
    argument: str | None = None
    given: bool = True


@dataclass(frozen=True)
class Point:
    """One fixture on one point of the axes."""

    number: int
    before: str
    after: str | None
    use_orig_params: bool
    strategy: str
    optimizer: str
    looks: tuple[Look, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """What one launch has to do.

    `timeout` and `group_timeout` are seconds per scenario and per collective, `folder` is where reports go, `harness`
    the process that waits for them.
    """

    points: tuple[Point, ...]
    world: int
    device: str
    timeout: float
    group_timeout: float
    folder: str = ""
    harness: int = 0

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: str) -> LaunchPlan:
        """Read what `write` wrote."""
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        points = (
            Point(**{**point, "looks": tuple(Look(**look) for look in point["looks"])}) for point in raw.pop("points")
        )
        return cls(points=tuple(points), **raw)


@dataclass(frozen=True)
class Failure:
    """An exception of a scenario. `bases` are the names of its classes, `time` is `time.time()`."""

    type: str
    bases: tuple[str, ...]
    message: str
    traceback: str
    time: float

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True)
class Difference:
    """One observation that `before` and `after` do not share, both values shortened."""

    name: str
    where: str
    before: str
    after: str


@dataclass(frozen=True)
class Side:
    """What one rank saw of one program.

    `seen` answers the point's looks in order; `placements` are the arguments that reached torch's state-dict
    implementation; `oracle` are disagreements with the single-process run, `checked` how many states were compared
    with it, `unchecked` why some were not. `fixed` are axes that the scenario set itself, `used` those it took from the
    trial, `skip` is a reason not to count.
    """

    failure: Failure | None = None
    skip: str | None = None
    seen: tuple[bool, ...] = ()
    placements: tuple[str, ...] = ()
    oracle: tuple[str, ...] = ()
    checked: int = 0
    unchecked: str | None = None
    fixed: dict[str, Any] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    deprecations: tuple[str, ...] = ()


@dataclass
class RankRecord:
    """Everything one rank reported about one point; a missing side or `finished` False means that it died there."""

    rank: int
    started: str | None = None
    sides: dict[str, Side] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    seconds: float = 0.0
    finished: bool = False


def record_file(folder: Path, rank: int) -> Path:
    """Where the lines about `rank` go."""
    return folder / f"rank{rank}.jsonl"


def stack_file(folder: Path, rank: int) -> Path:
    """Where `rank` dumps its stacks when it hangs or dies."""
    return folder / f"rank{rank}.stacks"


def output_file(folder: Path, rank: int) -> Path:
    """Where what `rank` prints goes."""
    return folder / f"rank{rank}.output"


def hello_file(folder: Path) -> Path:
    """Where a launch says which torch it runs and what it had to work around."""
    return folder / "hello.jsonl"


def append(path: Path, event: dict[str, Any]) -> None:
    """Add one line and hand it to the operating system, so that it outlives the process."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a file that may not exist yet or still grow."""
    return parse_events(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else []


def parse_events(text: str) -> list[dict[str, Any]]:
    """The events of complete lines; a line that is not finished yet is left out."""
    return [json.loads(line) for line in text.split("\n")[:-1] if line]


def side_from(raw: dict[str, Any]) -> Side:
    """A `Side` from its JSON form."""
    failure = raw.get("failure")
    lists = {key: tuple(raw[key]) for key in ("seen", "placements", "oracle", "used", "deprecations")}
    made = Failure(**{**failure, "bases": tuple(failure["bases"])}) if failure else None
    return Side(**{**raw, **lists, "failure": made})


def records(folder: Path, rank: int) -> dict[int, RankRecord]:
    """What `rank` reported so far, by point number."""
    found: dict[int, RankRecord] = {}
    for event in read_events(record_file(folder, rank)):
        record = found.setdefault(event["point"], RankRecord(rank))
        if event["event"] == "start":
            record.started = event["side"]
        elif event["event"] == "side":
            record.sides[event["side"]] = side_from(event["outcome"])
        elif event["event"] == "end":
            record.differences = tuple(Difference(**raw) for raw in event["differences"])
            record.seconds, record.finished = event["seconds"], True
    return found


def started(folder: Path, world: int) -> set[int]:
    """The points that any rank has started."""
    return {number for rank in range(world) for number in records(folder, rank)}


@dataclass(frozen=True)
class Exit:
    """How a rank's process ended: its exit code, or minus the signal.

    `asked` when it was told to, `abandoned` when it left since its peers did not answer.
    """

    rank: int
    point: int | None
    code: int
    asked: bool
    abandoned: bool = False


def note_leaving(folder: Path, rank: int, why: str) -> None:
    """Note that a rank is about to end its process, which is `ABANDONED` or has `FINISHED`."""
    (folder / f"rank{rank}.leaving").write_text(why, encoding="utf-8")


def take_leaving(folder: Path, rank: int) -> str | None:
    """Why a rank ended its process, if it was the rank that did; forgotten once told."""
    file = folder / f"rank{rank}.leaving"
    if not file.is_file():
        return None
    why = file.read_text(encoding="utf-8")
    file.unlink()
    return why


def note_exit(folder: Path, rank: int, code: int, *, asked: bool, abandoned: bool) -> None:
    """Note how a rank ended, and at which point."""
    point = next(reversed(records(folder, rank)), None)
    told = Exit(rank, point, code, asked, abandoned)
    append(folder / "exits.jsonl", asdict(told))


def exits(folder: Path) -> list[Exit]:
    """Every noted exit, in order."""
    return [Exit(**raw) for raw in read_events(folder / "exits.jsonl")]


def heading(point: int, side: str) -> str:
    """The line that opens a program's part of what a rank prints and dumps."""
    return f"{_HEADING}{point} {side}\n"


_HEADING = "=== fsdp-migrate verify: point "


def part(path: Path, point: int) -> str:
    """What was written to `path` under the headings of `point`; empty if there is no such file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    parts = (part.partition("\n") for part in text.split(_HEADING)[1:])
    mine = "".join(body for title, _, body in parts if title.split(" ")[0] == str(point))
    return "\n".join(line for line in mine.split("\n") if not line.startswith("Extension modules")).strip()
