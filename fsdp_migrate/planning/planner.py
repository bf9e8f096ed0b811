"""Plans files: it finds what lint reports and, for `rewrite`, the new texts.

The bytes of every file are screened first. Files that may hold findings are then linted, in several processes if that
is faster, unless an earlier run has done so.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from fsdp_migrate.findings import FileReport
from fsdp_migrate.planning.parts import CacheError, FilePlan, Overlooked, Part, RewriteResult
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import is_beside, is_script, lines_of
from fsdp_migrate.workspace.filesystem import FileError, in_order

# With fewer files than this, looking at all of them takes no longer than loading what is known of them.
_MANY = 64

if TYPE_CHECKING:
    from fsdp_migrate.planning.across import Across, Target
    from fsdp_migrate.planning.cache import Cache
    from fsdp_migrate.planning.choosing import Chooser
    from fsdp_migrate.planning.workers import WorkerDied
    from fsdp_migrate.screen import Look
    from fsdp_migrate.trace.seen import Observed
    from fsdp_migrate.transactions import Transaction
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.modules.carried import Carried
    from fsdp_migrate.workspace.modules.view import View
    from fsdp_migrate.workspace.settings import Settings
    from fsdp_migrate.workspace.workspace import Workspace


class Effort(NamedTuple):
    """What may be used to be faster: `jobs` processes (None: as many as are worth it), and a cache.

    `cache_dir` is its folder, None for the user's own. `fixes` says that the findings need their fixes.
    """

    jobs: int | None = 1
    cache: bool = False
    cache_dir: str | None = None
    fixes: bool = True


NO_EFFORT = Effort()

Item = TypeVar("Item")


class Follow(Protocol):
    """Passes items on, and shows the user the progress."""

    def __call__(self, items: Iterable[Item], doing: str, total: int, /) -> Iterable[Item]:
        """`doing` says what is done with the items, `total` how many there are."""


def unfollowed(items: Iterable[Item], _doing: str, _total: int) -> Iterable[Item]:
    """The items, without showing progress."""
    return items


def _asked_for(workspace: Workspace) -> Target | None:
    """The target that the settings of a file name, where it takes more than rules for single files."""
    configuration = workspace.configuration
    configuration.check(workspace.files)
    asked: list[Target] = []
    if "fsdp2" in configuration.targets:
        from fsdp_migrate.targets.fsdp2.target import ToFsdp2

        asked.append(ToFsdp2())
    if "dcp" in configuration.targets:
        from fsdp_migrate.targets.dcp.target import ToDcp, concerns

        asked += [ToDcp()] if concerns(workspace) else []
    return asked[0] if len(asked) == 1 else _Several(asked) if asked else None


class _Several:
    """Several targets, each for its own files."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets
        self.name = ", ".join(target.name for target in targets)

    def transactions(self, workspace: Workspace) -> Iterator[Transaction]:
        """What each of them has to do."""
        for target in self.targets:
            yield from target.transactions(workspace)


# What a process says of a file, and its new text, None where that is the old one.
_Seen = tuple[RewriteResult, "bytes | None"]


class Planner:
    """Plans the files of a workspace; if `rewriting`, with their new texts.

    Nothing is written. Without a `target` every file is a part of its own, and is forgotten once it is planned.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        rewriting: bool,
        effort: Effort = NO_EFFORT,
        follow: Follow = unfollowed,
        target: Target | None = None,
        files: Sequence[SourceFile] | None = None,
        chooser: Chooser | None = None,
        observed: Observed | None = None,
    ) -> None:
        """Plan `files` of the workspace, by default all; a `chooser` takes some of the fixes that could be made.

        `observed` is what runs of the program showed.
        """
        self.workspace = workspace
        self.rewriting = rewriting
        self.effort = effort
        self.follow = follow
        self.target = target or _asked_for(workspace)
        self.files = workspace.files if files is None else files
        self.chooser = chooser
        self.observed = observed
        self._clean: dict[str, Settings] = {}
        self._candidates: dict[str, tuple[int, list[int] | None]] = {}
        self._waiting: set[str] = set()
        self._near: set[str] = set()
        self._old: set[str] = set()
        self._takers: Collection[str] | None = None
        self._imports: dict[str, bytes] = {}
        self._failed: dict[str, Exception] = {}
        self._done: dict[str, _Seen | str] = {}
        self._across: Across | None = None

    def parts(self, without: Mapping[str, str] | None = None) -> Iterator[Part]:
        """The parts of the plan, in order of path.

        Files in `without` stay as they are, for the reason given, and so does everything that changes with them.

        Raises:
            CacheError: the folder that the user gave cannot be used.
        """
        if self.target is not None:
            from fsdp_migrate.planning.across import Across

            self._across = Across(
                self.workspace, self.target, without or {}, self.files, self.chooser, rewriting=self.rewriting
            )
            self.workspace = self._across.workspace
            self.files = in_order((*self.files, *self._across.created))
        for file in self.follow(self.files, "Reading", len(self.files)):
            self._screened(file)
        self._work()
        if self._across is None:
            for plan in self._plans():
                yield Part((plan,))
        else:
            plans = map(self._across.completed, self._plans())
            yield from self._across.parts(plans)
        if "cache" in self.__dict__ and self.cache is not None:
            self.cache.save()

    @property
    def _doing(self) -> str:
        return "Rewriting" if self.rewriting else "Checking"

    def _plans(self) -> Iterator[FilePlan]:
        for file in self.follow(self.files, self._doing, len(self.files)):
            yield self._planned(file)

    def again(self, part: Part, without: Mapping[str, str]) -> Iterator[Part]:
        """Plan the files of a part again, with some of them left as they are."""
        assert self._across is not None
        files = [plan.file for plan in part.files if not plan.created]
        planner = Planner(
            self._across.before,
            rewriting=self.rewriting,
            target=self.target,
            files=files,
            chooser=self.chooser,
            observed=self.observed,
        )
        yield from planner.parts(without)

    @cached_property
    def cache(self) -> Cache | None:
        """The cache, loaded when it is first needed; None if it is not used.

        Raises:
            CacheError: the folder that the user gave cannot be used.
        """
        if not self.effort.cache or self.target is not None:
            return None
        from fsdp_migrate.planning.cache import Cache, default_folder

        if self.effort.cache_dir is not None:
            return Cache(self.effort.cache_dir)
        try:
            return Cache(default_folder())
        except CacheError:
            return None  # nobody asked for this one

    @cached_property
    def _early(self) -> Cache | None:
        """The cache, if there are so many files that it is faster than reading them."""
        return self.cache if len(self.workspace.files) >= _MANY else None

    @cached_property
    def _around(self) -> str:
        from fsdp_migrate.planning.cache import around_key

        settings = {self._shared(file) for file in self.workspace.files}
        paths = [os.path.abspath(file.path) for file in self.workspace.files]
        return around_key(paths, self.workspace.discovery.folders, settings)

    @property
    def _trace(self) -> str:
        """What the traces say that were given, as a part of the cache's key."""
        return "" if self.observed is None else self.observed.key

    def _shared(self, file: SourceFile) -> Settings:
        return self.workspace.configuration.shared(file)

    def _screened(self, file: SourceFile) -> None:
        """Find out whether a file may hold findings. Errors are kept until the file is planned."""
        try:
            self._screen(file)
        except CacheError:
            raise
        except Exception as error:
            self._failed[file.path] = error

    def _screen(self, file: SourceFile) -> None:
        settings = self._shared(file)
        called = self.observed is not None and self.observed.calls_in(_named(file))
        cache = None if called else self._early
        mark = None if cache is None else cache.mark(file)
        if cache is not None and cache.is_clean(file, mark, settings):
            self._clean[file.path] = settings
            return
        raw = self.workspace.read(file)
        look = self._looked(file, raw)
        if look.passes or called or (self._across is not None and self._across.speaks_of(file)):
            # What is said of a script depends on the program that it starts.
            kept = self.cache is not None and not is_script(file.shown)
            self._candidates[file.path] = len(raw), (mark or self.cache.mark(file)) if self.cache and kept else None
            return
        self._clean[file.path] = settings
        if look.waits:
            self._waiting.add(file.path)
        elif cache is not None:
            cache.keep_clean(file, mark, raw, settings)
        if cache is not None and file.path in self._imports:
            cache.keep_imports(file, self._imports[file.path], near=look.near)

    def _looked(self, file: SourceFile, raw: bytes) -> Look:
        """Look at a file's bytes, and keep what they tell the others."""
        from fsdp_migrate.lint import look_at

        imports = None
        if len(self.workspace.files) > 1 and file.raw is None and not is_beside(file.shown):
            from fsdp_migrate.scan.imports import import_lines

            imports = self._imports[file.path] = import_lines(lines_of(raw, file.path))
        look = look_at(raw, file.shown, self._shared(file), imports)
        if look.near:
            self._near.add(file.path)
        if look.old:
            self._old.add(file.path)
        return look

    def _overlook(self) -> None:
        """Find the files that the bytes alone do not tell: what of torch they use has other names elsewhere."""
        if not self._clean or not (self._candidates or self._waiting):
            return
        if self.cache is None:
            found = self._overlooked()
        else:
            ranges = sorted({str(self._settings(file).torch) for file in self.workspace.files})
            found = self.cache.overlooked(self._around, ranges, self._overlooked)
        for path in found.paths:
            if self._clean.pop(path, None) is not None:
                self._candidates[path] = 0, None

    def _settings(self, file: SourceFile) -> Settings:
        try:
            return self.workspace.settings(file, used=False)
        except Exception:  # which is told when the file is planned
            return self._shared(file)

    def _overlooked(self) -> Overlooked:
        """The files that hold something of torch only through others, and the words by which they may."""
        carried = self._carried() if len(self.workspace.files) > 1 else None
        self._takers = frozenset(() if carried is None else carried.takers())
        found = list(self._passed_on(self._takers))
        return Overlooked(found, [] if carried is None else sorted(carried.words))

    def _passed_on(self, takers: Collection[str]) -> Iterator[str]:
        from fsdp_migrate.lint import passes_through

        for file in self.workspace.files:
            waits = file.path in self._waiting
            if waits or (file.path in self._clean and os.path.abspath(file.path) in takers):
                view, raw = self.workspace.view(file, self._settings(file)), self.workspace.read(file)
                if passes_through(raw, file.shown, self._shared(file), view, waits=waits):
                    yield file.path

    def _carried(self) -> Carried:
        """The map of what the files have of torch, for all that ask for it from now on."""
        from fsdp_migrate.lint import screen_of
        from fsdp_migrate.scan.names import joined
        from fsdp_migrate.workspace.modules.carried import Carried, Wanted

        files = {os.path.abspath(file.path): file for file in self.workspace.code if file.raw is None}
        for file in files.values():
            if file.path not in self._imports and file.path not in self._failed:
                held = None if self._early is None else self._early.imports(file)
                if held is None:
                    self._looked(file, self.workspace.read(file))
                else:
                    self._imports[file.path], is_near = held
                    self._near |= {file.path} if is_near else set()
        screens = [screen_of(settings) for settings in {self._shared(file) for file in files.values()}]
        names = joined(screen.names for screen in screens)
        near = any(screen.asks_near for screen in screens)
        wanted = Wanted(
            lambda text: any(screen.speaks(text) for screen in screens),
            lambda text: frozenset[bytes]().union(*(screen.words_in(text) for screen in screens)),
            names,
            near=near,
        )
        imports = {path: self._imports[file.path] for path, file in files.items() if file.path in self._imports}
        near_paths = {os.path.abspath(path) for path in self._near}
        carried = Carried(imports, near_paths, lambda path: self.workspace.read(files[path]), wanted)
        self.workspace.modules.texts.carried = carried
        return carried

    def _work(self) -> None:
        """Lint the candidates in several processes if that is faster. The others are linted when they are planned."""
        self._overlook()
        alone = self.effort.jobs == 1 or self._across is not None or self.chooser is not None
        if alone or len(self._candidates) < 2:
            return
        waiting = [file for file in self.workspace.files if file.path in self._candidates and file.raw is None]
        from fsdp_migrate.planning import workers

        waiting = [file for file in waiting if not self._is_cached(file)]
        processes = workers.count(self.effort.jobs, sum(self._candidates[file.path][0] for file in waiting))
        if processes < 2 or len(waiting) < 2:
            return
        import fsdp_migrate.facts  # noqa: F401 - once for all processes

        results = workers.results(self._attempt, waiting, min(processes, len(waiting)))
        for place, result in self.follow(results, self._doing, len(waiting)):
            if result is not None:
                self._done[waiting[place].path] = str(result) if isinstance(result, Exception) else result

    def _attempt(self, file: SourceFile) -> _Seen | WorkerDied | None:
        """The result for one file; None after an error, which occurs again when the file is planned."""
        try:
            raw = self.workspace.read(file)
            result = self._looked_at(file, raw, self.workspace.settings(file))
            return result._replace(raw=b""), None if result.raw == raw else result.raw
        except Exception:
            return None

    def _planned(self, file: SourceFile) -> FilePlan:
        """The plan of a file. An error becomes its failure, even if it is a bug of this program."""
        try:
            return self._plan(file)
        except CacheError:
            raise
        except FileError as error:
            failure = str(error)
        except Exception as error:
            failure = fault(error)
        return FilePlan(file, self._shared(file), b"", RewriteResult(b""), failure)

    def _plan(self, file: SourceFile) -> FilePlan:
        if file.path in self._failed:
            raise self._failed[file.path]
        if file.path in self._clean:
            return FilePlan(file, self._clean[file.path], b"", RewriteResult(b""))
        done = self._done.pop(file.path, None)
        if isinstance(done, str):
            raise FileError(done)
        raw, settings = self.workspace.read(file), self.workspace.settings(file)
        if done is not None:
            result, new = done
            result = result._replace(raw=raw if new is None else new)
        else:
            result = self._cached(file, raw, settings) or self._looked_at(file, raw, settings)
        if result.report is not None:
            self._keep(file, raw, settings, result.report)
        return FilePlan(file, settings, raw, result._replace(report=None))

    def _looked_at(self, file: SourceFile, raw: bytes, settings: Settings) -> RewriteResult:
        view = self.workspace.view(file, settings)
        self.workspace.modules.trim(len(raw))
        seen = None if self.observed is None else self.observed.seen(_named(file), raw)
        if seen is None and file.path in self._old and not self._is_worth_it(file, raw, settings, view):
            return RewriteResult(raw, report=FileReport(file.shown))
        if self.rewriting:
            from fsdp_migrate.planning.rewriting import rewrite_bytes

            made = None if self._across is None else self._across.progress(file)
            return rewrite_bytes(raw, file.shown, settings, view, made, self.chooser, chosen=True, seen=seen)
        from fsdp_migrate.lint import lint_bytes

        report = lint_bytes(raw, file.shown, settings, view, chosen=True, seen=seen)
        return RewriteResult(raw, (), report.findings, report.suppressed, report.error, report)

    def _is_worth_it(self, file: SourceFile, raw: bytes, settings: Settings, view: View | None) -> bool:
        """Whether a file that writes only names which the newest release has as before can hold findings."""
        if not settings.torch.newest_only(settings.seeks_hints):
            return True
        from fsdp_migrate.lint import passes_through

        taken = self._takers is None or os.path.abspath(file.path) in self._takers
        return taken and passes_through(raw, file.shown, settings, view, waits=False, newest_only=True)

    def _keep(self, file: SourceFile, raw: bytes, settings: Settings, report: FileReport) -> None:
        mark = self._candidates[file.path][1]
        if mark is not None and self.cache is not None and mark == self.cache.mark(file):
            self.cache.keep(file, mark, raw, settings, self._around, report, self._trace)

    def _is_cached(self, file: SourceFile) -> bool:
        try:
            return self._cached(file, self.workspace.read(file), self.workspace.settings(file)) is not None
        except Exception:
            return False

    def _cached(self, file: SourceFile, raw: bytes, settings: Settings) -> RewriteResult | None:
        if self.cache is None or file.raw is not None:
            return None
        fixes = self.rewriting or self.effort.fixes
        report = self.cache.report(file, raw, settings, self._around, self._trace, fixes=fixes)
        return None if report is None else RewriteResult(raw, (), report.findings, report.suppressed, report.error)


def _named(file: SourceFile) -> str:
    """The path of a file, or the one that stdin is said to have."""
    return file.path if file.raw is None else file.shown


def fault(error: Exception) -> str:
    """The message about a bug of this program."""
    import traceback  # only where something is wrong

    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return f"a bug in fsdp-migrate, please report it: {what} ({where})"
