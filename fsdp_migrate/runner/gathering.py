"""What a run gathers: findings, changes and failures, file by file, with the settings and projects they hang on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from fsdp_migrate.config import Settings
from fsdp_migrate.config.configuration import Configuration
from fsdp_migrate.files import REPLACEMENT, Discovery, Failure, FileError, SourceFile
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.report import Run
from fsdp_migrate.report.output import FileOptionError
from fsdp_migrate.source import SUFFIXES
from fsdp_migrate.torch_api import DEFAULT_RANGE

if TYPE_CHECKING:
    from pathlib import Path

    from fsdp_migrate.modules import Modules
    from fsdp_migrate.modules.view import View
    from fsdp_migrate.projects import Projects
    from fsdp_migrate.runner.baseline import Baseline
    from fsdp_migrate.torch_api import Statement

Item = TypeVar("Item")


class Effort(NamedTuple):
    """What may be used to be faster: `jobs` processes (None: as many as pay off), and a cache.

    `cache_dir` is where it is, None for the user's own place. `fixes` says that the findings need theirs.
    """

    jobs: int | None = 1
    cache: bool = False
    cache_dir: str | None = None
    fixes: bool = True


NO_EFFORT = Effort()


class Follow(Protocol):
    """Gives items as they are, and shows the user how far a run is with them."""

    def __call__(self, items: Iterable[Item], doing: str, total: int, /) -> Iterable[Item]:
        """`doing` says what is being done with the items, `total` how many there are."""


def unfollowed(items: Iterable[Item], _doing: str, _total: int) -> Iterable[Item]:
    """The items; nobody watches."""
    return items


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
    stated: dict[str, Statement] = field(default_factory=dict)
    files_checked: int = 0
    suppressed: int = 0
    hidden_hints: int = 0
    noting: bool = False
    follow: Follow = unfollowed

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
        return settings._replace(torch=self.projects.of(file, used=used).torch)

    def elsewhere(self, file: SourceFile, settings: Settings, discovery: Discovery) -> View | None:
        """What a file can learn of the others of its project; a text from stdin belongs where its name says."""
        if file.raw is not None and not file.shown.endswith(SUFFIXES):
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
            if settings.torch.stated is not None:
                self.stated[file.shown] = settings.torch.stated
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
            from fsdp_migrate.runner import baseline

            self.baselines[path] = baseline.load(str(path))
        return None if path is None else self.baselines[path]

    def run(self) -> Run:
        """All of it, ready to be reported."""
        return Run(
            torch=str(self.configuration.options.torch or DEFAULT_RANGE),
            projects=() if self.projects is None else self.projects.used,
            config_warnings=tuple(self.configuration.files.warnings),
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
            stated=self.stated,
        )


def _fault(error: Exception) -> str:
    import traceback  # only where something is wrong

    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"a fault in fsdp-migrate, please report it: {what} ({where})"
