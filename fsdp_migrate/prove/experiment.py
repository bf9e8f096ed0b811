"""The runs of an experiment: both versions, the old one twice, and again from what they saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdp_migrate.injected.recorder.plan import Plan
from fsdp_migrate.prove import changes, copies, records
from fsdp_migrate.prove.compare import Changed, Phase
from fsdp_migrate.prove.copies import Project
from fsdp_migrate.prove.launch import Home, Program, run
from fsdp_migrate.prove.records import Run

KEPT = 256_000_000  # bytes of tensors that the ranks of a run store, to tell how large a difference is
KEPT_TO_MEASURE = 16_000_000_000  # where differences are allowed up to a size, which takes all values


@dataclass(frozen=True)
class Settings:
    """What is asked of the runs.

    `steps` is the number of optimizer steps, None for whole programs. With `resume_words`, which may be empty, programs
    start again from their checkpoints, with these words in addition. `measured` says that values may differ by a size,
    `drifting` that a control run shows by how much.
    """

    steps: int | None = None
    resume_words: tuple[str, ...] | None = None
    deterministic: bool = False
    measured: bool = False
    drifting: bool = False


@dataclass(frozen=True)
class Findings:
    """The phases, the lines that differ, and why nothing could be resumed where that was asked."""

    phases: tuple[Phase, ...]
    changed: Changed
    missing_checkpoint: str | None
    drifting: bool


class Experiment:
    """Runs `program` of a project in the folder `place`, from the clean copies `before` and `after` in it.

    `tell` is called with a line on each run once it has ended.
    """

    def __init__(
        self, program: Program, project: Project, place: Path, settings: Settings, tell: Callable[[str], object]
    ) -> None:
        self._program = program
        self._project = project
        self._place = place
        self._settings = settings
        self._tell = tell
        self.before, self.after = (place / "versions" / name for name in ("before", "after"))

    def findings(self) -> Findings:
        """Run everything that is needed.

        Raises:
            LaunchError: the program cannot be started.
        """
        self._lines = dict(zip(("before", "after"), changes.changed_lines(self.before, self.after)))
        changed = Changed(
            *({path: frozenset(numbers) for path, numbers in self._lines[s].items()} for s in self._lines)
        )
        before = self._start("before", self.before)
        for place in sorted({str(event.data["outside"]) for _, event in before.of("save") if "outside" in event.data}):
            self._tell(
                f"the program saves to {place}, which all starts share: have it write below its working directory"
            )
        drifting = self._settings.drifting or _uses_gpu(before)
        if not before.completed or before.problems or not before.steps:
            return Findings((Phase("training", before),), changed, None, drifting)
        again = self._start("before again", self.before)
        after = self._start("after", self.after)
        control = self._start("control", self.before, nudged=True) if drifting else None
        phases = [Phase("training", before, again, after, control)]
        missing = None
        if self._settings.resume_words is not None:
            missing = None if any(before.of("save")) else f"before saved nothing to go on from by step {before.steps}"
            if missing is None and after.completed:
                phases += self._resumed()
        return Findings(tuple(phases), changed, missing, drifting)

    def _resumed(self) -> Sequence[Phase]:
        before = self._start("before from before", self.before, goes_on="before")
        again = self._start("before again from before again", self.before, goes_on="before again")
        after = self._start("after from before", self.after, goes_on="before")
        back = self._start("before from after", self.before, goes_on="after")
        return (
            Phase("after resumes what before saved", before, again, after, resumes=True),
            Phase("before resumes what after saved", before, again, back, resumes=True, old_code=True),
        )

    def _start(self, name: str, version: Path, *, goes_on: str | None = None, nudged: bool = False) -> Run:
        """Run a version; from where the run called `goes_on` stopped, if that is given."""
        home = self._home(name)
        copies.copy_copy(version, home.copy)
        program = self._program
        if goes_on is not None:
            first = self._home(goes_on)
            copies.carry_over(first.copy, self.after if goes_on == "after" else self.before, home.copy)
            copies.copy_files(first.temporary, home.temporary)
            program = replace(program, words=(*program.words, *(self._settings.resume_words or ())))
        world = program.nproc * program.rendezvous.nnodes
        plan = Plan(
            steps=self._settings.steps,
            lines=self._lines[version.name],
            keep=(KEPT_TO_MEASURE if self._settings.measured else KEPT) // world,
            deterministic=self._settings.deterministic,
            nudged=nudged,
        )
        seconds = run(program, home, self._project.root, self._project.inside, plan)
        made = records.read(home.record)
        self._tell(f"{name}: {made.steps} optimizer step{'s' * (made.steps != 1)}, {seconds:.0f} s")
        return made

    def _home(self, name: str) -> Home:
        return Home(self._place / "runs" / name.replace(" ", "-"))


def _uses_gpu(run: Run) -> bool:
    return any(event.data.get("cuda") or event.data.get("memory") == "cuda" for _, event in run.of("start", "cost"))
