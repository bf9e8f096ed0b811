"""A migration as every report reads it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.target import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsdp_migrate.rules.card import RuleCard
    from fsdp_migrate.targets.fsdp2.steps import Given
    from fsdp_migrate.targets.fsdp2.target import Model
    from fsdp_migrate.workspace.filesystem import Failure
    from fsdp_migrate.workspace.settings import Project


_TARGET = "--target"


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
    """What a run of `prove` showed.

    `files` says by real path how far each file is that the run changed. It compared the code with its rewrite if it
    `rewrites`: to a `target`, and with `unsafe` fixes or not. `notes` say what has to be known of it.
    """

    file: str
    verdict: str
    detail: str
    program: str | None = None
    files: Mapping[str, str] = MappingProxyType({})
    rewrites: bool = False
    target: str | None = None
    unsafe: bool = True
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        program = "" if self.program is None else f" of `{self.program}`"
        told = (f"{self.verdict}{program} ({self.file})", self.detail, *self.notes)
        return "; ".join(part for part in told if part)

    def covers(self, step: Step) -> tuple[str, ...]:
        """The files that a step changes by its command, and that the run had with this change."""
        if step.command is None or (self.rewrites and not self._rewrites_as(shlex.split(step.command))):
            return ()
        paths = dict.fromkeys([diff.path for diff in step.all_diffs] + [place.path for place in step.where])
        return tuple(path for path in paths if os.path.realpath(path) in self.files)

    def _rewrites_as(self, words: list[str]) -> bool:
        target = words[words.index(_TARGET) + 1] if _TARGET in words else self.target
        return target == self.target and (self.unsafe or "--unsafe-fixes" not in words)


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

    def proven(self, step: Step) -> Iterator[tuple[Proof, tuple[str, ...]]]:
        """What runs of `prove` showed of a step, with the files of the step that they had."""
        for one in self.proofs:
            if paths := one.covers(step):
                yield one, paths

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
