"""A migration as every report reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.target import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsdp_migrate.rules.card import RuleCard
    from fsdp_migrate.targets.fsdp2.steps import Given
    from fsdp_migrate.targets.fsdp2.target import Model
    from fsdp_migrate.workspace.filesystem import Failure
    from fsdp_migrate.workspace.settings import Project


class Diff(NamedTuple):
    """The unified diff of one file, and how many lines it adds and removes."""

    path: str
    patch: bytes

    @property
    def added(self) -> int:
        """The number of new lines."""
        return self._starting(b"+") - self.patch.startswith(b"---")

    @property
    def removed(self) -> int:
        """The number of old lines that go."""
        return self._starting(b"-") - self.patch.startswith(b"---")

    def _starting(self, sign: bytes) -> int:
        return sum(line.startswith(sign) for line in self.patch.split(b"\n"))


class Item(NamedTuple):
    """One finding. `key` names it across plans; `diffs` are those of its own fix, where it is decided by itself."""

    key: str
    code: str
    place: Place
    message: str
    reason: str | None
    severity: Severity
    applicability: Applicability
    diffs: tuple[Diff, ...] = ()


class Cause(NamedTuple):
    """One of the things that a step is about: what is the case, what to do about it, and where."""

    what: str
    todo: str | None
    places: tuple[Place, ...]


class Frees(NamedTuple):
    """How many models a blocker stops, and how many of these it stops alone."""

    stopped: int
    alone: int


class Step(NamedTuple):
    """One thing to do, which leaves a working tree.

    `by` says who does it. `why` is the reason, and `todo` the instruction where no command does it; where there are
    several, `causes` has each. `diffs` are those of the files as they are once the steps `after` are done. `command`
    does the step, `check` shows that it is done, and `holds` says what is true then.
    """

    id: str
    title: str
    by: str
    why: str
    holds: str
    check: str
    command: str | None = None
    todo: str | None = None
    items: tuple[Item, ...] = ()
    causes: tuple[Cause, ...] = ()
    places: tuple[Place, ...] = ()
    diffs: tuple[Diff, ...] = ()
    codes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    frees: Frees | None = None

    @property
    def where(self) -> tuple[Place, ...]:
        """All places of the step."""
        return (*self.places, *(item.place for item in self.items))

    @property
    def all_diffs(self) -> tuple[Diff, ...]:
        """The diffs of the step, and those of its findings."""
        return (*self.diffs, *(diff for item in self.items for diff in item.diffs))


class Package(NamedTuple):
    """A folder with the number of its files that use each part of torch, by the names in `standing.PARTS`."""

    name: str
    files: int
    uses: dict[str, int]
    findings: int = 0


class Numbers(NamedTuple):
    """How much there is. `programs` are models of FSDP1; lines are those that commands of the plan change."""

    findings: int
    files: int
    programs: int
    lines_added: int
    lines_removed: int
    safe: int
    unsafe: int
    manual: int


class Rule(NamedTuple):
    """A rule that steps name, and the bundled programs that prove its fixes."""

    card: RuleCard
    proofs: tuple[str, ...]


class Proof(NamedTuple):
    """What a run of `prove` showed."""

    file: str
    verdict: str
    detail: str


class Told(NamedTuple):
    """A finding as a plan names it."""

    key: str
    text: str


class Compared(NamedTuple):
    """What is done since an earlier plan, what is new, and how many findings are left of it."""

    file: str
    done: tuple[Told, ...]
    new: tuple[Told, ...]
    left: int


class Migration(NamedTuple):
    """Where a code base stands, and the steps in order. `given` are the options that steps of a model repeat."""

    target: str | None
    given: Given
    projects: tuple[Project, ...]
    files_checked: int
    packages: tuple[Package, ...]
    steps: tuple[Step, ...]
    rules: tuple[Rule, ...]
    models: Sequence[Model]
    failures: tuple[Failure, ...]
    proofs: tuple[Proof, ...] = ()
    compared: Compared | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """The findings of all steps."""
        return tuple(item for step in self.steps for item in step.items)

    @property
    def numbers(self) -> Numbers:
        """How much there is."""
        items = self.items
        diffs = [diff for step in self.steps for diff in step.all_diffs]
        grades = [item.applicability for item in items]
        return Numbers(
            findings=len(items),
            files=len({place.path for step in self.steps for place in step.where}),
            programs=len(self.models),
            lines_added=sum(diff.added for diff in diffs),
            lines_removed=sum(diff.removed for diff in diffs),
            safe=grades.count(Applicability.SAFE),
            unsafe=grades.count(Applicability.UNSAFE),
            manual=grades.count(Applicability.MANUAL),
        )

    def after(self, step: Step) -> str:
        """Which text the lines and diffs of a step mean, where it is not that of today."""
        numbers = [str(number) for number, one in enumerate(self.steps, 1) if one.id in step.after]
        done = f"steps {' and '.join(numbers)} are" if len(numbers) > 1 else f"step {''.join(numbers)} is"
        return f"once {done} done" if numbers else ""

    def blocker(self, what: str, todo: str) -> int:
        """The number of the step about something that stops models."""
        return next(
            number
            for number, step in enumerate(self.steps, 1)
            if step.frees is not None and any((one.what, one.todo) == (what, todo) for one in step.causes)
        )

    @property
    def exit_code(self) -> int:
        """0 nothing is left, 1 something is, 3 a file could not be looked at."""
        return 3 if self.failures else int(bool(self.steps))
