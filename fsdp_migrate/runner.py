"""Linting and rewriting many files: one file's trouble never keeps the others from being done."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from fsdp_migrate import files
from fsdp_migrate.config import Settings
from fsdp_migrate.config.configuration import Configuration
from fsdp_migrate.files import REPLACEMENT, Discovery, Failure, FileError, SourceFile
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.report import Run
from fsdp_migrate.report.output import FileOptionError
from fsdp_migrate.torch_api import DEFAULT_RANGE

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.baseline import Baseline
    from fsdp_migrate.modules import Modules
    from fsdp_migrate.modules.view import View
    from fsdp_migrate.projects import Projects


class Change(NamedTuple):
    """The bytes of one file before and after rewriting."""

    path: str
    before: bytes
    after: bytes


class Effort(NamedTuple):
    """What may be used to be faster: `jobs` processes (None: as many as pay off), and a cache.

    `cache_dir` is where it is, None for the user's own place. `fixes` says that the findings need theirs.
    """

    jobs: int | None = 1
    cache: bool = False
    cache_dir: str | None = None
    fixes: bool = True


NO_EFFORT = Effort()


class CacheError(Exception):
    """A folder for the cache that cannot be used; the message is one line for the user."""


@dataclass
class Gathered:
    """What the files looked at so far gave."""

    configuration: Configuration
    failures: list[Failure]
    baselines: dict[Path, Baseline] = field(default_factory=dict)
    projects: Projects | None = None
    modules: Modules | None = None
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)
    fail_on: dict[str, Severity] = field(default_factory=dict)
    real_paths: dict[str, str] = field(default_factory=dict)
    unsafe_fixes: set[str] = field(default_factory=set)
    files_checked: int = 0
    suppressed: int = 0
    hidden_hints: int = 0
    noting: bool = False

    @contextlib.contextmanager
    def failures_of(self, file: SourceFile) -> Iterator[None]:
        """Note what goes wrong with `file` and go on, even if the fault is this program's."""
        if REPLACEMENT in file.shown:
            self.real_paths[file.shown] = file.path
        try:
            yield
        except (FileOptionError, CacheError):
            raise
        except FileError as error:
            self.failures.append(Failure(file.shown, str(error)))
        except Exception as error:
            self.failures.append(Failure(file.shown, _fault(error)))

    def settings_of(self, file: SourceFile, *, used: bool = True) -> Settings:
        """The settings of a file, with the torch range of its project where none was given for all.

        The project counts as `used`, and is named in the report, where the file itself is linted.
        """
        settings = self.configuration.of(file)
        if self.configuration.options.torch is not None:
            return settings
        if self.projects is None:
            from fsdp_migrate.projects import Projects  # not needed where no file is worth a closer look

            self.projects = Projects(self.configuration.files)
        return replace(settings, torch=self.projects.of(file, used=used).torch)

    def elsewhere(self, file: SourceFile, settings: Settings, discovery: Discovery) -> View | None:
        """What a file can learn of the others of its project; a text from stdin belongs where its name says."""
        if file.raw is not None and not file.shown.endswith(files.SUFFIXES):
            return None
        path = file.path if file.raw is None else file.shown
        return self.modules_of(discovery).view(path, settings.torch)

    def modules_of(self, discovery: Discovery) -> Modules:
        """What the files import from one another."""
        if self.modules is None:
            from fsdp_migrate.modules import Modules

            self.modules = Modules(discovery.files, discovery.folders, noting=self.noting)
        return self.modules

    def sort(self, discovery: Discovery) -> None:
        """Put everything into the order of the files."""
        place = {file.shown: number for number, file in enumerate(discovery.files)}
        self.findings.sort(key=lambda finding: place[finding.path])
        self.fixed.sort(key=lambda finding: place[finding.path])
        self.changed.sort(key=lambda path: place[path])

    def add(
        self,
        file: SourceFile,
        raw: bytes,
        settings: Settings,
        findings: tuple[Finding, ...] = (),
        suppressed: int = 0,
        error: str | None = None,
    ) -> None:
        """Take what one file gave, hints only where they are wanted and only what its baseline does not know."""
        baseline = self.baseline_at(settings.baseline)
        if findings and baseline is not None:
            findings = baseline.unknown(file.shown, raw, findings, hints=settings.hints)
        shown = [finding for finding in findings if settings.hints or finding.severity is not Severity.HINT]
        self.files_checked += error is None
        self.findings += sorted(shown, key=lambda finding: finding.place)
        self.hidden_hints += len(findings) - len(shown)
        self.suppressed += suppressed
        if shown:
            self.sources[file.shown] = raw
            self.fail_on[file.shown] = settings.fail_on
            if settings.unsafe_fixes:
                self.unsafe_fixes.add(file.shown)
        if error is not None:
            self.failures.append(Failure(file.shown, error))

    def baseline_at(self, path: Path | None) -> Baseline | None:
        """The baseline at a path, if there is a path.

        Raises:
            FileOptionError: it cannot be read.
        """
        if path is not None and path not in self.baselines:
            from fsdp_migrate import baseline

            self.baselines[path] = baseline.load(str(path))
        return None if path is None else self.baselines[path]

    def run(self) -> Run:
        """All of it, ready to be reported."""
        return Run(
            torch=str(self.configuration.options.torch or DEFAULT_RANGE),
            projects=() if self.projects is None else self.projects.used,
            findings=tuple(self.findings),
            failures=tuple(self.failures),
            files_checked=self.files_checked,
            suppressed=self.suppressed,
            hidden_hints=self.hidden_hints,
            fixed=tuple(self.fixed),
            changed=tuple(self.changed),
            sources=self.sources,
            fail_on=self.fail_on,
            real_paths=self.real_paths,
            unsafe_fixes=frozenset(self.unsafe_fixes),
        )


def lint(
    discovery: Discovery,
    configuration: Configuration,
    baselines: Mapping[Path, Baseline] | None = None,
    effort: Effort = NO_EFFORT,
) -> Run:
    """Look for findings in every file, each by its own settings; `baselines` are those that were read already.

    Raises:
        FileOptionError: a baseline cannot be read.
        CacheError: the folder for the cache cannot be used.
    """
    from fsdp_migrate.linting import Linting

    gathered = Gathered(configuration, list(discovery.failures), dict(baselines or {}), noting=effort.cache)
    gathered.baseline_at(configuration.options.baseline)
    linting = Linting(discovery, configuration, gathered, effort)
    with _uncollected():
        for file in discovery.files:
            linting.screen(file)
        linting.work()
        for file in discovery.files:
            with gathered.failures_of(file):
                linting.add(file)
        linting.save()
    run = gathered.run()
    if not gathered.baselines:
        return run
    from fsdp_migrate.baseline import Scope

    scope = Scope.of(discovery, configuration, run)
    return replace(run, known=tuple(baseline.known(scope) for baseline in gathered.baselines.values()))


def rewrite(discovery: Discovery, configuration: Configuration, *, write: bool) -> tuple[Run, tuple[Change, ...]]:
    """Rewrite every file, on disk only if `write`; also gives the texts before and after of those that change.

    Raises:
        FileOptionError: a baseline cannot be read.
    """
    from fsdp_migrate.rewrite import rewrite_bytes

    gathered = Gathered(configuration, list(discovery.failures))
    gathered.baseline_at(configuration.options.baseline)
    changes: list[Change] = []
    folders: list[str] = []
    if write and discovery.leftovers:
        from fsdp_migrate import replacing

        replacing.clear(discovery.leftovers)
    with _uncollected():
        for file, raw in _worth_linting(discovery, gathered):
            with gathered.failures_of(file):
                settings = gathered.settings_of(file)
                gathered.baseline_at(settings.baseline)  # what is wrong with it is told before anything is written
                result = rewrite_bytes(raw, file.shown, settings, gathered.elsewhere(file, settings, discovery))
                if result.raw != raw:
                    if write:
                        folders.append(files.write(file, result.raw, raw))
                    changes.append(Change(file.shown, raw, result.raw))
                    gathered.changed.append(file.shown)
                    gathered.fixed += sorted(result.fixed, key=lambda finding: finding.place)
                gathered.add(file, result.raw, settings, result.left, result.suppressed, result.error)
    if folders:
        files.sync(folders)
    # What a rewrite mends is gone from the code only now, so nothing is said of entries that no longer occur.
    known = tuple(baseline.known() for baseline in gathered.baselines.values())
    return replace(gathered.run(), known=known), tuple(changes)


def _worth_linting(discovery: Discovery, gathered: Gathered) -> Iterator[tuple[SourceFile, bytes]]:
    """The files that the byte test lets through, with their bytes; the others are counted, and no more."""
    from fsdp_migrate.lint import worth_linting

    configuration = gathered.configuration
    chosen: list[SourceFile] = []
    passed: list[SourceFile] = []
    for file in discovery.files:
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


def add_noqa(discovery: Discovery, configuration: Configuration) -> Suppressed:
    """Write a `# noqa` for everything that `lint` reports."""
    from fsdp_migrate.add_noqa import with_noqa
    from fsdp_migrate.rewrite.splicing import RewriteError

    before = lint(discovery, configuration)
    failures: list[Failure] = []
    folders: list[str] = []
    for file in discovery.files:
        findings = [finding for finding in before.findings if finding.path == file.shown]
        if not findings:
            continue
        raw = before.sources[file.shown]
        try:
            new = with_noqa(raw, findings)
            if new != raw:
                folders.append(files.write(file, new, raw))
        except (FileError, RewriteError) as error:
            failures.append(Failure(file.shown, str(error)))
    if folders:
        files.sync(folders)
    after = lint(discovery._replace(failures=(*discovery.failures, *failures)), configuration)
    return Suppressed(len(before.findings) - len(after.findings), len(folders), after)


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


def _fault(error: Exception) -> str:
    import traceback  # only where something is wrong

    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"a fault in fsdp-migrate, please report it: {what} ({where})"
