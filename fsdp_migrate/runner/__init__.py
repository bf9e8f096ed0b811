"""Linting and rewriting many files: one file's trouble never keeps the others from being done."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from fsdp_migrate import files
from fsdp_migrate.config.configuration import Configuration
from fsdp_migrate.files import Discovery, Failure, FileError, SourceFile
from fsdp_migrate.findings import UNPARSABLE
from fsdp_migrate.report import Change, Run
from fsdp_migrate.runner.gathering import NO_EFFORT, Effort, Follow, Gathered, unfollowed

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.modules.view import View
    from fsdp_migrate.runner.baseline import Baseline


def lint(
    discovery: Discovery,
    configuration: Configuration,
    baselines: Mapping[Path, Baseline] | None = None,
    effort: Effort = NO_EFFORT,
    follow: Follow = unfollowed,
) -> Run:
    """Look for findings in every file, each by its own settings; `baselines` are those that were read already.

    Raises:
        FileOptionError: a baseline cannot be read.
        CacheError: the folder for the cache cannot be used.
    """
    from fsdp_migrate.runner.linting import Linting

    gathered = Gathered(
        configuration, list(discovery.failures), dict(baselines or {}), noting=effort.cache, follow=follow
    )
    gathered.baseline_at(configuration.options.baseline)
    linting = Linting(discovery, configuration, gathered, effort)
    with _uncollected():
        for file in follow(discovery.files, "Reading", len(discovery.files)):
            linting.screen(file)
        linting.work()
        for file in follow(discovery.files, "Checking", len(discovery.files)):
            with gathered.failures_of(file):
                linting.add(file)
        linting.save()
    run = gathered.run()
    if not gathered.baselines:
        return run
    from fsdp_migrate.runner.baseline import Scope

    scope = Scope.of(discovery, configuration, run)
    return replace(run, known=tuple(baseline.known(scope) for baseline in gathered.baselines.values()))


def renew_baseline(path: Path, discovery: Discovery, configuration: Configuration, follow: Follow = unfollowed) -> Run:
    """Write the baseline that knows all that lint finds; of the findings only files that do not parse are reported.

    Raises:
        FileOptionError: there is one already that cannot be read, or it cannot be written.
    """
    from fsdp_migrate.runner import baseline

    old = baseline.load(str(path), missing_ok=True)
    alone = Configuration(replace(configuration.options, baseline=path), configuration.files)
    run = lint(discovery, alone, {path: old}, follow=follow)
    known = old.renew(baseline.Scope.of(discovery, configuration, run))
    left = tuple(finding for finding in run.findings if finding.code == UNPARSABLE)
    return replace(run, findings=left, known=(known,))


def rewrite(
    discovery: Discovery, configuration: Configuration, *, write: bool, follow: Follow = unfollowed
) -> tuple[Run, tuple[Change, ...]]:
    """Rewrite every file, on disk only if `write`; also gives the texts before and after of those that change.

    Raises:
        FileOptionError: a baseline cannot be read.
        Interrupted: the run was.
    """
    from fsdp_migrate.rewrite import rewrite_bytes
    from fsdp_migrate.runner.writing import Writing

    gathered = Gathered(configuration, list(discovery.failures), follow=follow)
    gathered.baseline_at(configuration.options.baseline)
    changes: list[Change] = []
    if write and discovery.leftovers:
        from fsdp_migrate import replacing

        replacing.clear(discovery.leftovers)
    with Writing(len(discovery.files)) as writing, _uncollected():
        for file, raw in _worth_linting(discovery, gathered):
            with gathered.failures_of(file):
                settings = gathered.settings_of(file)
                gathered.baseline_at(settings.baseline)  # what is wrong with it is told before anything is written
                # Texts are kept as they were before anything was written.
                gathered.modules_of(discovery).trim_parsed(len(raw))
                result = rewrite_bytes(raw, file.shown, settings, gathered.elsewhere(file, settings, discovery))
                if result.raw != raw:
                    if write:
                        writing.write(file, result.raw, raw)
                    changes.append(Change(file.shown, raw, result.raw))
                    gathered.changed.append(file.shown)
                    gathered.fixed += sorted(result.fixed, key=lambda finding: finding.place)
                gathered.add(file, result.raw, settings, result.left, result.suppressed, result.error)
    # What a rewrite mends is gone from the code only now, so nothing is said of entries that no longer occur.
    known = tuple(baseline.known() for baseline in gathered.baselines.values())
    return replace(gathered.run(), known=known), tuple(changes)


def _worth_linting(discovery: Discovery, gathered: Gathered) -> Iterator[tuple[SourceFile, bytes]]:
    """The files that the byte test lets through, with their bytes; the others are counted, and no more."""
    from fsdp_migrate.lint import worth_linting

    configuration = gathered.configuration
    chosen: list[SourceFile] = []
    passed: list[SourceFile] = []
    for file in gathered.follow(discovery.files, "Rewriting", len(discovery.files)):
        with gathered.failures_of(file):
            raw, settings = files.read(file), configuration.shared(file)
            if worth_linting(raw, file.shown, settings):
                chosen.append(file)
                yield file, raw
            else:
                passed.append(file)
                gathered.add(file, raw, settings)
    if chosen and passed:
        yield from _overlooked(discovery, gathered, chosen, passed)


def _overlooked(
    discovery: Discovery, gathered: Gathered, chosen: list[SourceFile], passed: list[SourceFile]
) -> Iterator[tuple[SourceFile, bytes]]:
    """The files among `passed` that the `chosen` ones give names of torch to."""
    from fsdp_migrate.lint import worth_linting
    from fsdp_migrate.modules.screening import overlooked

    def view_of(file: SourceFile) -> View:
        return gathered.modules_of(discovery).view(file.path, gathered.settings_of(file, used=False).torch)

    def is_worth(file: SourceFile, text: bytes) -> bool:
        return worth_linting(text, file.shown, gathered.configuration.shared(file))

    on_disk = [file for file in chosen if file.raw is None]
    for file, raw in overlooked(on_disk, passed, view_of, is_worth):
        gathered.files_checked -= 1  # It was counted when it was passed over.
        yield file, raw
    gathered.sort(discovery)


class Suppressed(NamedTuple):
    """How many findings got a suppression in how many files, and what the files are like with it."""

    findings: int
    files: int
    run: Run


def add_noqa(discovery: Discovery, configuration: Configuration, follow: Follow = unfollowed) -> Suppressed:
    """Write a `# noqa` for everything that `lint` reports.

    Raises:
        Interrupted: the run was.
    """
    from fsdp_migrate.runner.noqa import with_noqa
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


def torch_ranges(discovery: Discovery, configuration: Configuration) -> Run:
    """Find the projects of all files and look at nothing else."""
    gathered = Gathered(configuration, list(discovery.failures))
    for file in discovery.files:
        with gathered.failures_of(file):
            gathered.settings_of(file)
    return gathered.run()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Linting makes millions of objects and leaves none of them behind: looking for garbage meanwhile is in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
