"""The whole of `verify`: from fixtures and options to one result per fixture and point of the axes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from fsdp_migrate.verify.axes import Axis, points
from fsdp_migrate.verify.fixtures import Condition, Fixture
from fsdp_migrate.verify.lanes import Lane, LaneError, probe
from fsdp_migrate.verify.launch import Launch, Rendezvous, is_elastic
from fsdp_migrate.verify.verdicts import BROKEN, Judgement, Report, Verdict, judge
from fsdp_migrate.verify.worker.protocol import LaunchPlan, Look, Point, RankRecord

DEFAULT_WORLD = 2
FULL_WORLDS = (2, 4)
GROUP_TIMEOUT = 20.0  # seconds a collective waits for a rank


@dataclass(frozen=True)
class RunSettings:
    """How to run: see the options of `fsdp-migrate verify`.

    `nproc` is the number of ranks (per machine, if there are several); None means 2, and more for fixtures that need
    more. `pythons` are the interpreters of the lanes; empty means this one. `timeout` is in seconds per scenario.
    """

    nproc: int | None = None
    device: str = "auto"
    timeout: float = 60.0
    full: bool = False
    pythons: tuple[str, ...] = ()
    rendezvous: Rendezvous = field(default_factory=Rendezvous)


@dataclass(frozen=True)
class Result:
    """How one fixture fared on one point of the axes; `checked` states were compared with the single-process run."""

    fixture: Fixture
    axis: Axis
    torch: str
    device: str
    judgement: Judgement
    seconds: float = 0.0
    checked: int = 0
    unchecked: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.judgement.verdict


@dataclass(frozen=True)
class LaneRun:
    """What one launch was about: told once in the output."""

    torch: str
    world: int
    device: str
    workarounds: tuple[str, ...]


@dataclass
class Outcome:
    """Everything one call of `verify` found out; `errors` tell of lanes that could not run at all."""

    results: list[Result] = field(default_factory=list)
    runs: list[LaneRun] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """Whether all is fine and at least one fixture ran."""
        ran = any(result.verdict is not Verdict.SKIPPED for result in self.results)
        return ran and not self.errors and all(result.verdict.fine for result in self.results)


class Progress:
    """Told how far a run is; does nothing by itself."""

    def begin(self, total: int, what: str) -> None:
        """A launch of `total` points starts."""

    def step(self, fixture: Fixture, axis: Axis) -> None:
        """One point is through."""

    def end(self) -> None:
        """The launch has ended."""


@dataclass(frozen=True)
class _Job:
    fixture: Fixture
    axis: Axis


def verify(fixtures: Sequence[Fixture], settings: RunSettings, progress: Progress | None = None) -> Outcome:
    """Run `fixtures` before and after rewriting and compare what every rank observed.

    A lane that cannot be used (torch is not installed, no GPU where one was asked for) is told in `Outcome.errors`.
    """
    outcome = Outcome()
    for python in settings.pythons or (sys.executable,):
        try:
            lane = probe(python, settings.device)
            jobs = sorted(_jobs(fixtures, settings), key=lambda job: job.axis.world)
            for world, group in groupby(jobs, key=lambda job: job.axis.world):
                _run_world(list(group), lane, world, settings, outcome, progress or Progress())
        except LaneError as error:
            outcome.errors.append(str(error))
    return outcome


def _jobs(fixtures: Iterable[Fixture], settings: RunSettings) -> Iterator[_Job]:
    for fixture in fixtures:
        if settings.nproc is not None or settings.rendezvous.nnodes > 1:
            worlds = [(settings.nproc or DEFAULT_WORLD) * settings.rendezvous.nnodes]
        elif settings.full:
            worlds = [world for world in FULL_WORLDS if world >= fixture.header.world] or [fixture.header.world]
        else:
            worlds = [max(DEFAULT_WORLD, fixture.header.world)]
        for world in worlds:
            yield from (_Job(fixture, axis) for axis in points(world, full=settings.full))


def _device(lane: Lane, world: int, settings: RunSettings) -> str:
    """Where `world` ranks of `lane` run.

    Raises:
        LaneError: GPUs were asked for and there are none at all.
    """
    if settings.device == "cpu":
        return "cpu"
    if settings.device == "cuda":
        if not lane.gpus:
            raise LaneError(f"{lane.python}: its torch {lane.torch} sees no GPU; use --device cpu")
        return "cuda"
    return "cuda" if lane.gpus >= world // settings.rendezvous.nnodes else "cpu"


def _run_world(
    jobs: list[_Job], lane: Lane, world: int, settings: RunSettings, outcome: Outcome, progress: Progress
) -> None:
    """Run what belongs to one lane and world size, in one launch.

    Raises:
        LaneError: its ranks cannot be started.
    """
    device = _device(lane, world, settings)
    facts = [_facts(job, lane, device) for job in jobs]
    reasons = [_skip(job, known, lane, settings) for job, known in zip(jobs, facts)]
    launcher = _Launcher(jobs, facts, lane, world, device, settings, progress)
    results = {
        number: Result(jobs[number].fixture, jobs[number].axis, lane.torch, device, Judgement(Verdict.SKIPPED, reason))
        for number, reason in enumerate(reasons)
        if reason is not None
    }
    runnable = [number for number in range(len(jobs)) if number not in results]
    if runnable:
        results |= launcher.run(runnable, debug=launcher.elastic)
        outcome.runs.append(launcher.told)
        broken = [number for number in runnable if results[number].verdict in BROKEN]
        if broken and not launcher.elastic:
            # torch's debug mode doubles the cost of a run and names what a bare one cannot: which collectives do
            # not match, which rank is missing. Failing once is enough for the verdict.
            again = launcher.run(broken, debug=True)
            results |= {number: result for number, result in again.items() if result.verdict in BROKEN}
        differing = [number for number in runnable if results[number].verdict is Verdict.DIFFERS]
        if differing and not launcher.elastic:
            results |= launcher.unsteady({number: results[number] for number in differing})
    outcome.results += [results[number] for number in range(len(jobs))]


@dataclass
class _Launcher:
    """Launches for the jobs of one lane and world size."""

    jobs: list[_Job]
    facts: list[dict[str, object]]
    lane: Lane
    world: int
    device: str
    settings: RunSettings
    progress: Progress

    @property
    def elastic(self) -> bool:
        """Whether torch's elastic launcher starts the ranks."""
        return is_elastic(self.device, self.settings.rendezvous)

    def run(self, numbers: list[int], *, debug: bool) -> dict[int, Result]:
        """Launch the jobs of these numbers; again with those that no rank came to if a launch itself ended early."""
        results: dict[int, Result] = {}
        while numbers:
            with Launch(self.lane, self._plan(numbers), self.settings.rendezvous, debug=debug) as launch:
                self._follow(launch, numbers)
                if not launch.started and not results:
                    raise LaneError(f"{self.lane.python}: its ranks did not start: {launch.last_words()}")
                self.told = LaneRun(self.lane.torch, self.world, self.device, tuple(launch.workarounds()))
                records = dict(launch.records())
                results |= {number: self._result(number, launch, ranks) for number, ranks in records.items()}
            left = [number for number, ranks in records.items() if not any(r.started or r.sides for r in ranks)]
            numbers = left if len(left) < len(numbers) else []
        return results

    def unsteady(self, results: dict[int, Result]) -> dict[int, Result]:
        """Those of `results` whose program differs from itself from run to run, told as such."""
        twice = replace(self, jobs=[replace(job, fixture=_twice(job.fixture)) for job in self.jobs])
        found = {}
        for number, again in twice.run(list(results), debug=False).items():
            told = again.judgement.detail
            if again.verdict is Verdict.DIFFERS and told.startswith("rank "):
                detail = f"{results[number].judgement.detail}\nbefore.py differs from itself from run to run: {told}"
                found[number] = replace(results[number], judgement=Judgement(Verdict.DIFFERS, detail))
        return found

    def _plan(self, numbers: list[int]) -> LaunchPlan:
        return LaunchPlan(
            points=tuple(_point(number, self.jobs[number]) for number in numbers),
            world=self.world,
            device=self.device,
            timeout=self.settings.timeout,
            group_timeout=min(GROUP_TIMEOUT, self.settings.timeout / 2),
        )

    def _follow(self, launch: Launch, numbers: list[int]) -> None:
        self.progress.begin(len(numbers), f"torch {self.lane.torch}, {self.world} ranks on {self.device}")
        try:
            launch.run(lambda number: self.progress.step(self.jobs[number].fixture, self.jobs[number].axis))
        finally:
            self.progress.end()

    def _result(self, number: int, launch: Launch, records: list[RankRecord]) -> Result:
        job = self.jobs[number]
        report = launch.report(Report(job.fixture, self.facts[number], records), number)
        sides = list(report.sides("before" if job.fixture.after is None else "after").values())
        return Result(
            fixture=job.fixture,
            axis=job.axis,
            torch=self.lane.torch,
            device=self.device,
            judgement=judge(report),
            seconds=max((record.seconds for record in report.ranks), default=0.0),
            checked=min((side.checked for side in sides), default=0),
            unchecked=next((side.unchecked for side in sides if side.unchecked), None),
        )


def _twice(fixture: Fixture) -> Fixture:
    header = replace(fixture.header, evidence=(), fails=(), differs=())
    return replace(fixture, after=fixture.before, header=header)


def _facts(job: _Job, lane: Lane, device: str) -> dict[str, object]:
    return {**job.axis.facts(), "torch": lane.torch, "device": device}


def _skip(job: _Job, facts: Mapping[str, object], lane: Lane, settings: RunSettings) -> str | None:
    """Why this job cannot run here, if it cannot."""
    per_node = job.axis.world // settings.rendezvous.nnodes
    if facts["device"] == "cuda" and lane.gpus < per_node:
        return f"needs {per_node} GPUs, this machine has {lane.gpus}"
    unmet = next((need for need in job.fixture.header.needs if not need.holds(facts)), None)
    return None if unmet is None else _unmet(unmet, facts)


def _unmet(need: Condition, facts: Mapping[str, object]) -> str:
    if need.fact == "world":
        return f"needs {need}, this run has {facts['world']} ranks"
    return f"needs {need}, this is {facts[need.fact]}"


def _point(number: int, job: _Job) -> Point:
    fixture = job.fixture
    return Point(
        number=number,
        before=str(fixture.before),
        after=None if fixture.after is None else str(fixture.after),
        use_orig_params=job.axis.use_orig_params,
        strategy=job.axis.strategy,
        optimizer=job.axis.optimizer,
        looks=tuple(Look(e.kind, e.text, e.argument, e.given) for e in fixture.header.evidence),
    )
