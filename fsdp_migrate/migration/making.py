"""Makes the plan of a migration from what the runs over its files tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from fsdp_migrate import runner
from fsdp_migrate.findings import UNPARSABLE
from fsdp_migrate.migration import torch_steps
from fsdp_migrate.migration.compared import compared
from fsdp_migrate.migration.model import Migration, Proof, Rule, Step
from fsdp_migrate.migration.standing import packages
from fsdp_migrate.migration.torch_steps import Words
from fsdp_migrate.planning.planner import NO_EFFORT, Effort, Follow, unfollowed
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan
from fsdp_migrate.rules import find
from fsdp_migrate.rules.index import OF_TARGETS
from fsdp_migrate.runner import Fsdp1
from fsdp_migrate.targets.fsdp2.steps import YOU
from fsdp_migrate.targets.fsdp2.target import Place
from fsdp_migrate.workspace.filesystem import Discovery, Failure
from fsdp_migrate.workspace.settings import Layer, Project
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.settings import TARGETS, default_range
from fsdp_migrate.workspace.workspace import Workspace

_STATES, _MODELS = "dcp", "fsdp2"
_SAFE = "safe"
_SAFE_WHY = "the new code does the same on every rank, with every torch that the project supports"
_STATES_WHY = "the new functions for state dicts work on FSDP1 and on FSDP2, and `FSDP.state_dict_type` warns"
_FRAMEWORKS = "frameworks"
_FRAMEWORKS_WHY = "the settings of the project allow these fixes, which are unsafe otherwise"
_NO_MODELS = Fsdp1([], ())


class Wanted(NamedTuple):
    """What a plan is asked for: `paths` and `options` are those that its commands repeat."""

    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    since: str | None = None
    proofs: tuple[str, ...] = ()


def migration(
    discovery: Discovery,
    configuration: Configuration,
    wanted: Wanted,
    effort: Effort = NO_EFFORT,
    follow: Follow = unfollowed,
) -> Migration:
    """The plan of moving files to the target of the options, or else of their configuration files.

    Raises:
        FileOptionError: a file that an option names cannot be used.
        CacheError: the folder for the cache cannot be used.
    """
    target = configuration.options.target or _configured(discovery, configuration)
    proofs = tuple(_proofs(wanted.proofs))
    words = Words(wanted.paths, wanted.options)
    given = configuration.options._replace(target=target)
    projects = runner.torch_ranges(discovery, _with(configuration, given)).projects
    floor = list(_floor_of(target, projects, words))
    if floor and target is not None and given.torch is None:  # what follows is for the torch that the first step states
        given = given._replace(torch=default_range(target))
        words = words._replace(options=(f"--torch={given.torch}", *words.options))
        configuration = _with(configuration, configuration.options._replace(torch=given.torch))
    workspace = Workspace(discovery, _with(configuration, given))
    run = _Runs(workspace, configuration, effort, follow, words)
    # What is parsed for the models serves all other runs.
    with workspace.modules.pinned() if target == _MODELS else nullcontext():
        found = runner.models(workspace, follow) if target == _MODELS else _NO_MODELS
        plan = run.torch(target)
        steps = [*floor, *run.steps(given, plan, found)]
        return Migration(
            target=target,
            given=given,
            projects=projects,
            files_checked=plan.files_checked,
            packages=packages(workspace.beside(), [item.place.path for step in steps for item in step.items]),
            steps=tuple(steps),
            rules=tuple(_rules(sorted({code for step in steps for code in step.codes}))),
            models=found.models,
            failures=tuple(dict.fromkeys((*found.failures, *_failures(plan)))),
            proofs=proofs,
            compared=None if wanted.since is None else compared(wanted.since, target, steps),
        )


def _configured(discovery: Discovery, configuration: Configuration) -> str | None:
    """The target that goes furthest of those that configuration files name."""
    named = {configuration.shared(file).target for file in discovery.files}
    return max((target for target in named if target is not None), key=list(TARGETS).index, default=None)


def _failures(plan: Plan) -> Iterator[Failure]:
    yield from plan.failures
    for one in plan.findings:
        if one.code == UNPARSABLE:
            yield Failure(f"{one.path}:{one.line}", one.message)


def _proofs(files: Sequence[str]) -> Iterator[Proof]:
    for file in files:
        from fsdp_migrate.migration.proofs import proof

        yield proof(file)


def _rules(codes: list[str]) -> Iterator[Rule]:
    from fsdp_migrate.verify import proofs

    for code in codes:
        card = find(code)
        if card is not None:
            yield Rule(card, tuple(proofs(code)))


def _with(configuration: Configuration, options: Layer, *, rewriting: bool = False) -> Configuration:
    return Configuration(options, configuration.files, rewriting=rewriting)


def _floor_of(target: str | None, projects: Sequence[Project], words: Words) -> Iterator[Step]:
    """The lower bound that a target needs, where a project states an older one."""
    if target is None:
        return
    needed = default_range(target)
    for project in projects:
        stated = project.torch.stated
        if project.torch.assumed or project.torch.oldest >= needed.oldest:
            continue
        places = () if stated is None or stated.line is None else (Place(stated.file, stated.line),)
        where = f"{project.source}" if stated is None else stated.file
        yield Step(
            "floor-of-target" if project is projects[0] else f"floor-of-target-{project.root}",
            f"Raise the lower bound of torch to {needed.oldest.major}.{needed.oldest.minor}",
            YOU,
            f"the code that {target} writes runs on torch{needed}, and {where} supports torch{project.torch}",
            holds=f"the project states torch{needed}",
            check=words.command("plan", "--target", target),
            todo=f"state torch{needed}; the other steps presume it",
            places=places,
        )


class _Runs:
    """The runs over the files that a plan takes; each starts with the texts that the one before leaves."""

    def __init__(
        self, workspace: Workspace, configuration: Configuration, effort: Effort, follow: Follow, words: Words
    ) -> None:
        self.workspace = workspace
        self.configuration = configuration
        self.effort = effort
        self.follow = follow
        self.words = self.torch_words = words

    def steps(self, given: Layer, plan: Plan, found: Fsdp1) -> Iterator[Step]:
        """The steps behind that of the lower bound, in order."""
        words, target = self.words, given.target
        behind = words.behind(_SAFE, plan)
        yield from torch_steps.floors(plan, words, default_range(target).oldest)
        yield from torch_steps.safe(plan, self.torch_words, _SAFE, "Make the safe fixes", _SAFE_WHY)
        yield from torch_steps.decisions(plan, behind)
        if target is not None:
            yield from self.states(plan, found, behind)
        if target == _MODELS:
            from fsdp_migrate.migration import fsdp2_steps

            yield from self.frameworks(plan, behind)
            yield from fsdp2_steps.steps(found, given, words, self.workspace)

    def torch(self, target: str | None) -> Plan:
        """What a newer torch alone asks for, without what the target does otherwise."""
        options = self.configuration.options._replace(target=None)
        targets = () if target is None else (_STATES,) if target == _STATES else (_STATES, _MODELS)
        codes = tuple(entry.code for one in targets for entry in OF_TARGETS[one])
        if codes:
            options = options._replace(ignore=(*(options.ignore or ()), *codes))
            # Nothing about frameworks is safe to fix.
            words = [code for code in codes if code not in torch_steps.OF_FRAMEWORKS]
            self.torch_words = self.words._replace(options=("--ignore", ",".join(words), *self.words.options))
        configuration = _with(self.configuration, options, rewriting=True)
        workspace = self.workspace.beside(configuration, noting=self.effort.cache)
        return runner.planned(workspace, effort=self.effort, follow=self.follow)

    def states(self, before: Plan, found: Fsdp1, words: Words) -> Iterator[Step]:
        """What state dicts become, but for models that are converted whole."""
        options, words, chosen = self._to(_STATES, words)
        whole = _files_that_convert(found)
        files = tuple(one for one in self.workspace.files if one.shown not in whole)
        workspace = self.workspace.beside(
            _with(self.configuration, options), files=files, overlay=torch_steps.new_texts(before)
        )
        plan = runner.planned(workspace, follow=self.follow)
        if whole:
            paths = tuple(sorted({one.path for one in (*plan.fixed, *plan.findings)}))
            words, chosen = words._replace(paths=paths), chosen._replace(paths=paths)
        yield from torch_steps.safe(plan, chosen, "states", "Move state dicts to DCP", _STATES_WHY)
        yield from torch_steps.decisions(plan, words.behind("states", plan))

    def frameworks(self, before: Plan, words: Words) -> Iterator[Step]:
        """What frameworks are told of FSDP: no edit of the code that they shard takes it to FSDP2."""
        options, words, chosen = self._to(_MODELS, words)
        configuration = _with(self.configuration, options, rewriting=True)
        workspace = self.workspace.beside(configuration, overlay=torch_steps.new_texts(before))
        plan = runner.planned(workspace, follow=self.follow)
        yield from torch_steps.safe(plan, chosen, _FRAMEWORKS, "Change settings of frameworks", _FRAMEWORKS_WHY)
        yield from torch_steps.decisions(plan, words.behind(_FRAMEWORKS, plan))

    def _to(self, target: str, words: Words) -> tuple[Layer, Words, Words]:
        """The options of a run for what a target has of its own; the words of its commands, for one code and all."""
        codes = tuple(entry.code for entry in OF_TARGETS[target])
        options = self.configuration.options._replace(target=target, select=codes)
        words = words._replace(options=("--target", target, *words.options))
        return options, words, words._replace(options=("--select", ",".join(codes), *words.options))


def _files_that_convert(found: Fsdp1) -> frozenset[str]:
    if not found.models:
        return frozenset()
    from fsdp_migrate.migration.fsdp2_steps import files_that_convert

    return files_that_convert(found.models)
