"""Lints and rewrites many files. An error in one file does not stop the others."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from fsdp_migrate.findings import UNPARSABLE
from fsdp_migrate.planning.planner import NO_EFFORT, Effort, Follow, Planner, unfollowed
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan, Traced
from fsdp_migrate.runner.gathering import Gathered
from fsdp_migrate.source import holds
from fsdp_migrate.workspace.filesystem import Discovery, Failure, FileError
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.planning.across import Target
    from fsdp_migrate.planning.choosing import Chooser
    from fsdp_migrate.planning.parts import Part
    from fsdp_migrate.runner.baseline import Baseline
    from fsdp_migrate.targets.fsdp2.target import Model
    from fsdp_migrate.trace.seen import Observed


def lint(
    discovery: Discovery,
    configuration: Configuration,
    baselines: Mapping[Path, Baseline] | None = None,
    effort: Effort = NO_EFFORT,
    follow: Follow = unfollowed,
    target: Target | None = None,
    observed: Observed | None = None,
) -> Plan:
    """Lint every file by its own settings; `baselines` are those that were read already.

    `observed` is what runs of the program showed.

    Raises:
        FileOptionError: a baseline cannot be read.
        CacheError: the folder for the cache cannot be used.
    """
    gathered = _linted(discovery, configuration, baselines or {}, effort, follow, target, observed)
    plan = gathered.plan()._replace(traced=None if observed is None else _traced(observed, discovery))
    if not gathered.baselines:
        return plan
    from fsdp_migrate.runner.baseline import RunScope

    scope = RunScope.of(discovery, configuration, plan)
    return plan._replace(known=tuple(baseline.known(scope) for baseline in gathered.baselines.values()))


def _linted(
    discovery: Discovery,
    configuration: Configuration,
    baselines: Mapping[Path, Baseline],
    effort: Effort,
    follow: Follow,
    target: Target | None,
    observed: Observed | None,
) -> Gathered:
    workspace = Workspace(discovery, configuration, noting=effort.cache)
    gathered = Gathered(workspace, list(discovery.failures), dict(baselines))
    gathered.baseline_at(configuration.options.baseline)
    planner = Planner(workspace, rewriting=False, effort=effort, follow=follow, target=target, observed=observed)
    with _uncollected():
        for part in planner.parts():
            gathered.take(part)
    return gathered


def _traced(observed: Observed, discovery: Discovery) -> Traced:
    """What became of a trace in a run over some files."""
    elsewhere = len(observed.trace.calls) - observed.calls_of(
        file.path if file.raw is None else file.shown for file in discovery.files
    )
    return Traced(len(observed.trace.calls), elsewhere, observed.left_out, tuple(sorted(observed.changed)))


def renew_baseline(path: Path, discovery: Discovery, configuration: Configuration, follow: Follow = unfollowed) -> Plan:
    """Write a baseline with everything that lint finds; only findings about files that do not parse are returned.

    Raises:
        FileOptionError: there is one already that cannot be read, or it cannot be written.
    """
    from fsdp_migrate.runner import baseline

    old = baseline.load(str(path), missing_ok=True)
    alone = Configuration(configuration.options._replace(baseline=path), configuration.files)
    plan = lint(discovery, alone, {path: old}, follow=follow)
    known = old.renew(baseline.RunScope.of(discovery, configuration, plan))
    left = tuple(finding for finding in plan.findings if finding.code == UNPARSABLE)
    return plan._replace(findings=left, known=(known,))


def rewrite(
    discovery: Discovery,
    configuration: Configuration,
    *,
    write: bool,
    effort: Effort = NO_EFFORT,
    follow: Follow = unfollowed,
    target: Target | None = None,
    tell: Callable[[str], None] = lambda line: None,
    chooser: Chooser | None = None,
    observed: Observed | None = None,
) -> Plan:
    """Rewrite every file, on disk only if `write`; `observed` is what runs of the program showed.

    `tell` gets a line about what an earlier run did not finish, and about files that change together if this run is
    interrupted. Of the fixes that could be made a `chooser` takes some; it is not asked about what a baseline knows.

    Raises:
        FileOptionError: a baseline cannot be read.
        CacheError: the folder for the cache cannot be used.
        Interrupted: the run was.
    """
    if chooser is not None and any(configuration.shared(file).baseline is not None for file in discovery.files):
        from fsdp_migrate.runner.baseline import Unknown

        known = _linted(discovery, configuration, {}, effort, follow, target, observed).baselines.values()
        chooser = Unknown(chooser, (place for baseline in known for place in baseline.places))
    workspace = Workspace(discovery, configuration, noting=effort.cache)
    if not write:
        return planned(workspace, effort=effort, follow=follow, target=target, chooser=chooser, observed=observed)
    from fsdp_migrate.runner.writing import Committing, Writing

    with Writing(len(discovery.files)) as writing:
        committing = Committing(workspace, writing, tell)
        become = committing.parts
        return planned(
            workspace,
            effort=effort,
            follow=follow,
            target=target,
            chooser=chooser,
            become=become,
            observed=observed,
        )


def planned(
    workspace: Workspace,
    *,
    effort: Effort = NO_EFFORT,
    follow: Follow = unfollowed,
    target: Target | None = None,
    chooser: Chooser | None = None,
    become: Callable[[Part, Planner], Iterable[Part]] = lambda part, planner: (part,),
    observed: Observed | None = None,
) -> Plan:
    """The plan of rewriting the files. `become` gets every part, and returns the parts that it became."""
    gathered = Gathered(workspace, list(workspace.discovery.failures))
    gathered.baseline_at(workspace.configuration.options.baseline)
    planner = Planner(
        workspace, rewriting=True, effort=effort, follow=follow, target=target, chooser=chooser, observed=observed
    )
    with _uncollected():
        for part in planner.parts():
            for file_plan in part.files:  # what is wrong with a baseline is told before anything is written
                gathered.baseline_at(file_plan.settings.baseline)
            for done in become(part, planner):
                gathered.take(done)
    # What a rewrite fixes is gone from the code only now, so nothing is said of entries that no longer occur.
    known = tuple(baseline.known() for baseline in gathered.baselines.values())
    return gathered.plan()._replace(known=known)


class Suppressed(NamedTuple):
    """How many findings got a suppression in how many files, and the plan of the files with it."""

    findings: int
    files: int
    plan: Plan


def add_noqa(discovery: Discovery, configuration: Configuration, follow: Follow = unfollowed) -> Suppressed:
    """Write a `# noqa` for everything that `lint` reports.

    Raises:
        Interrupted: the run was.
    """
    from fsdp_migrate.planning.noqa import with_noqa
    from fsdp_migrate.runner.writing import Writing
    from fsdp_migrate.splicing import RewriteError

    before = lint(discovery, configuration, follow=follow)
    failures: list[Failure] = []
    found = {path: list(findings) for path, findings in groupby(before.findings, lambda finding: finding.path)}
    with Writing(len(discovery.files)) as writing:
        for file in discovery.files:
            findings = found.get(file.shown)
            if findings is None:
                continue
            raw = before.sources[file.shown]
            try:
                new = with_noqa(raw, findings)
                if new != raw:
                    writing.write(file, new, raw)
            except (FileError, RewriteError) as error:
                failures.append(Failure(file.shown, str(error)))
    after = lint(discovery._replace(failures=(*discovery.failures, *failures)), configuration, follow=follow)
    return Suppressed(len(before.findings) - len(after.findings), len(writing.written), after)


def models(workspace: Workspace, follow: Follow = unfollowed) -> Fsdp1:
    """The models of FSDP1 with what becomes of them."""
    from fsdp_migrate.targets.fsdp2 import target

    with _uncollected():
        found = list(follow(target.models(workspace), "Following", 0))
    failures = (*workspace.discovery.failures, *_unread(workspace))
    return Fsdp1(found, failures)


def _unread(workspace: Workspace) -> Iterator[Failure]:
    """The files with names of FSDP1 that cannot be read or do not parse."""
    from fsdp_migrate.lint import lint_bytes
    from fsdp_migrate.targets.fsdp2.closures import WORDS

    for file in workspace.code:
        try:
            raw = workspace.read(file)
        except FileError as error:
            yield Failure(file.shown, str(error))
            continue
        if not holds(raw, file.shown, WORDS):
            continue
        settings = workspace.settings(file, used=False)
        if workspace.modules.facts(os.path.abspath(file.path), settings.torch) is None:
            report = lint_bytes(raw, file.shown, settings)
            if report.error is not None:
                yield Failure(file.shown, report.error)
            for finding in report.findings:
                yield Failure(f"{file.shown}:{finding.line}", finding.message)


class Fsdp1(NamedTuple):
    """What there is of FSDP1, and the files that could not be looked at."""

    models: list[Model]
    failures: tuple[Failure, ...]


def torch_ranges(discovery: Discovery, configuration: Configuration) -> Plan:
    """Find the projects of all files and look at nothing else."""
    workspace = Workspace(discovery, configuration)
    for file in discovery.files:
        workspace.settings(file)
    return Gathered(workspace, list(discovery.failures)).plan()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: linting makes millions of objects and leaves none of them behind."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
