"""Linting the files of a run: first a look at the bytes of each, then a closer one at those that may hold findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate import files
from fsdp_migrate.findings import FileReport
from fsdp_migrate.runner.gathering import CacheError

# With fewer files than this, looking at all of them takes no longer than loading what is known of them.
_MANY = 64

if TYPE_CHECKING:
    from fsdp_migrate.config import Settings
    from fsdp_migrate.config.configuration import Configuration
    from fsdp_migrate.files import Discovery, SourceFile
    from fsdp_migrate.modules.view import View
    from fsdp_migrate.runner.cache import Cache
    from fsdp_migrate.runner.gathering import Effort, Gathered
    from fsdp_migrate.runner.workers import WorkerDied


class Linting:
    """One run of `lint`. Every file is screened, then `work` is done, then every file is added, in order."""

    def __init__(self, discovery: Discovery, configuration: Configuration, gathered: Gathered, effort: Effort) -> None:
        self.discovery = discovery
        self.configuration = configuration
        self.gathered = gathered
        self.effort = effort
        self._clean: dict[str, Settings] = {}
        self._candidates: dict[str, tuple[int, list[int] | None]] = {}
        self._failed: dict[str, Exception] = {}
        self._done: dict[str, FileReport | str] = {}

    @cached_property
    def cache(self) -> Cache | None:
        """What earlier runs found; loaded when it is first asked.

        Raises:
            CacheError: the folder that the user gave cannot be used.
        """
        if not self.effort.cache:
            return None
        from fsdp_migrate.runner.cache import Cache, default_folder

        if self.effort.cache_dir is not None:
            return Cache(self.effort.cache_dir)
        try:
            return Cache(default_folder())
        except CacheError:
            return None  # nobody asked for this one

    @cached_property
    def _early(self) -> Cache | None:
        """The cache where there are so many files that not even reading them pays off."""
        return self.cache if len(self.discovery.files) >= _MANY else None

    @cached_property
    def _around(self) -> str:
        from fsdp_migrate.runner.cache import around_key

        settings = {self.configuration.shared(file) for file in self.discovery.files}
        paths = [os.path.abspath(file.path) for file in self.discovery.files]
        return around_key(paths, self.discovery.folders, settings)

    def screen(self, file: SourceFile) -> None:
        """Find out whether a file may hold findings; what goes wrong with it is told when it is added.

        Raises:
            CacheError: the folder that the user gave cannot be used.
        """
        try:
            self._screen(file)
        except CacheError:
            raise
        except Exception as error:
            self._failed[file.path] = error

    def _screen(self, file: SourceFile) -> None:
        settings = self.configuration.shared(file)
        cache = self._early
        mark = None if cache is None else cache.mark(file)
        if cache is not None and cache.is_clean(file, mark, settings):
            self._clean[file.path] = settings
            return
        from fsdp_migrate.lint import worth_linting

        raw = files.read(file)
        if worth_linting(raw, file.shown, settings):
            self._candidates[file.path] = len(raw), None if self.cache is None else mark or self.cache.mark(file)
            return
        self._clean[file.path] = settings
        if cache is not None:
            cache.keep_clean(file, mark, raw, settings)

    def _overlook(self) -> None:
        """Find the files that the bytes alone do not tell: what of torch they use has other names elsewhere."""
        passed = [file for file in self.discovery.files if file.path in self._clean]
        chosen = [file for file in self.discovery.files if file.path in self._candidates and file.raw is None]
        if not passed or not chosen:
            return
        if self.cache is None:
            known = list(self._overlooked(chosen, passed))
        else:
            ranges = sorted({str(self._settings(file).torch) for file in chosen})
            known = self.cache.overlooked(self._around, ranges, lambda: self._overlooked(chosen, passed))
        for path in known:
            if self._clean.pop(path, None) is not None:
                self._candidates[path] = 0, None

    def _settings(self, file: SourceFile) -> Settings:
        try:
            return self.gathered.settings_of(file, used=False)
        except Exception:  # which is told when the file is added
            return self.configuration.shared(file)

    def _overlooked(self, chosen: list[SourceFile], passed: list[SourceFile]) -> Iterator[str]:
        from fsdp_migrate.lint import worth_linting
        from fsdp_migrate.modules.screening import overlooked

        def view_of(file: SourceFile) -> View:
            view: View = self.gathered.modules_of(self.discovery).view(file.path, self._settings(file).torch)
            return view

        def is_worth(file: SourceFile, text: bytes) -> bool:
            return worth_linting(text, file.shown, self.configuration.shared(file))

        for file, _ in overlooked(chosen, passed, view_of, is_worth):
            yield file.path

    def work(self) -> None:
        """Let several processes lint the candidates, where that pays off; whatever is left is done when it is added."""
        self._overlook()
        if self.effort.jobs == 1 or len(self._candidates) < 2:
            return
        waiting = [file for file in self.discovery.files if file.path in self._candidates and file.raw is None]
        from fsdp_migrate.runner import workers

        waiting = [file for file in waiting if not self._is_cached(file)]
        processes = workers.count(self.effort.jobs, sum(self._candidates[file.path][0] for file in waiting))
        if processes < 2 or len(waiting) < 2:
            return
        import fsdp_migrate.facts  # noqa: F401 - once for all processes

        results = workers.results(self._attempt, waiting, min(processes, len(waiting)))
        for place, result in self.gathered.follow(results, "Checking", len(waiting)):
            if result is not None:
                self._done[waiting[place].path] = str(result) if isinstance(result, Exception) else result

    def _attempt(self, file: SourceFile) -> FileReport | WorkerDied | None:
        """The report on a file; None where something goes wrong with it, which happens again when it is added."""
        try:
            return self._linted(file, files.read(file), self.gathered.settings_of(file))
        except Exception:
            return None

    def add(self, file: SourceFile) -> None:
        """Hand over what a file gave.

        Raises:
            FileError: it cannot be read, or the process that worked on it died.
            Exception: a fault of this program.
        """
        if file.path in self._failed:
            raise self._failed[file.path]
        if file.path in self._clean:
            self.gathered.add(file, b"", self._clean[file.path])
        elif file.path in self._candidates:
            done = self._done.pop(file.path, None)
            if isinstance(done, str):
                raise files.FileError(done)
            raw, settings = files.read(file), self.gathered.settings_of(file)
            report = None if done is not None else self._cached(file, raw, settings)
            if report is None:
                report = done or self._linted(file, raw, settings)
                self._keep(file, raw, settings, report)
            self.gathered.add(file, raw, settings, report.findings, report.suppressed, report.error)

    def _keep(self, file: SourceFile, raw: bytes, settings: Settings, report: FileReport) -> None:
        mark = self._candidates[file.path][1]
        if mark is not None and self.cache is not None and mark == self.cache.mark(file):
            self.cache.keep(file, mark, raw, settings, self._around, report)

    def save(self) -> None:
        """Keep what was found for the next run."""
        if "cache" in self.__dict__ and self.cache is not None:
            self.cache.save()

    def _is_cached(self, file: SourceFile) -> bool:
        try:
            return self._cached(file, files.read(file), self.gathered.settings_of(file)) is not None
        except Exception:
            return False

    def _cached(self, file: SourceFile, raw: bytes, settings: Settings) -> FileReport | None:
        if self.cache is None or file.raw is not None:
            return None
        return self.cache.report(file, raw, settings, self._around, fixes=self.effort.fixes)

    def _linted(self, file: SourceFile, raw: bytes, settings: Settings) -> FileReport:
        from fsdp_migrate.lint import lint_bytes

        self.gathered.modules_of(self.discovery).trim(len(raw))
        return lint_bytes(raw, file.shown, settings, self.gathered.elsewhere(file, settings, self.discovery))
