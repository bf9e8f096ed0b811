"""The findings of earlier runs, for files that have not changed since.

There is one JSON file for each folder that the command runs in, in a folder of the user. A file that others could have
written is not used, and a damaged one counts as empty. Hints and severities are decided when a report is made, so
options that only choose what is shown do not matter here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fsdp_migrate._version import __version__
from fsdp_migrate.findings import Applicability, FileReport, Finding, Severity
from fsdp_migrate.planning.parts import CacheError, Overlooked
from fsdp_migrate.source import Span
from fsdp_migrate.workspace.disk import digest

if TYPE_CHECKING:
    from fsdp_migrate.workspace.filesystem import SourceFile
    from fsdp_migrate.workspace.modules.finder import Finder
    from fsdp_migrate.workspace.settings import Settings

_FORMAT = 5
_MOST_FORGOTTEN = 20_000
_MOST_SETTINGS = 8
_HALF = 32
# A file that was written just before it was read may be written again without looking any different.
_FRESH_NS = 100_000_000


class Cache:
    """The reports on files as they were, by absolute path."""

    def __init__(self, folder: str) -> None:
        """Load the cache in `folder`, which is created if it does not exist.

        Raises:
            CacheError: it cannot be made, or others than the user may write into it.
        """
        _secure(folder)
        self._path = os.path.join(folder, f"{_name()}.json")
        found = _load(self._path)
        self._known: dict[str, list[Any]] = found["files"]
        self._runs: dict[str, Any] = found["runs"]
        self._words: dict[str, list[str]] = found["words"]
        self._given: set[str] = set()
        self._given_key = _words_key(())
        self._seen: dict[str, list[Any]] = {}
        self._changed = False
        self._modules: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    def mark(self, file: SourceFile) -> list[int] | None:
        """Size, times and inode of a file; None if it is not a file on disk."""
        if file.raw is not None:
            return None
        try:
            status = os.stat(file.path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]

    def is_clean(self, file: SourceFile, mark: list[int] | None, settings: Settings) -> bool:
        """Whether the cache says that the rules in force find nothing in a file."""
        entry = self._current(file, mark)
        return entry is not None and _rules_key(settings) in entry[2]

    def keep_clean(self, file: SourceFile, mark: list[int] | None, raw: bytes, settings: Settings) -> None:
        """Note that the rules in force find nothing in a file."""
        entry, rules = self._entry(file, mark, raw), _rules_key(settings)
        if entry is not None and rules not in entry[2]:
            entry[2].append(rules)
            self._changed = True

    def report(
        self, file: SourceFile, raw: bytes, settings: Settings, around: str, trace: str = "", *, fixes: bool
    ) -> FileReport | None:
        """The report on a file; None if there is none, or if it has findings and `fixes` are wanted.

        `around` stands for the files of the run and their folders, because imports depend on them, and `trace` for what
        runs of the program showed.
        """
        entry = self._known.get(os.path.abspath(file.path))
        held = None if entry is None or entry[1] != digest(raw) else entry[3].get(_key(file, settings, trace))
        if held is None:
            return None
        try:
            if held["names"] != around[:_HALF] or held["all"] not in (None, around) or (fixes and held["fixes"]):
                return None
            if not self._is_given_the_same(held["words"], raw):
                return None
            if any(self._digest_now(path) != then for path, then in held["consulted"]):
                return None
            if any(self._modules_in(folder) != modules for folder, modules in held["folders"]):
                return None
            findings = tuple(_finding(file.shown, values) for values in held["findings"])
            return FileReport(file.shown, findings, held["suppressed"], held["error"])
        except (LookupError, TypeError, ValueError):
            return None

    def _digest_now(self, path: str) -> str:
        """The digest of a module, computed again only if the file looks different."""
        if path not in self._digests:
            entry = self._seen.get(path)
            self._digests[path] = _digest_of(path) if entry is None else entry[1]
        return self._digests[path]

    def keep(
        self,
        file: SourceFile,
        mark: list[int] | None,
        raw: bytes,
        settings: Settings,
        around: str,
        report: FileReport,
        trace: str = "",
    ) -> None:
        """Note the report on a file, unless it depends on files outside the run."""
        entry = None if report.asked_beyond else self._entry(file, mark, raw)
        if entry is not None:
            if len(entry[3]) >= _MOST_SETTINGS:
                entry[3].clear()
            entry[3][_key(file, settings, trace)] = {
                "suppressed": report.suppressed,
                "error": report.error,
                "consulted": [[one.path, one.digest] for one in report.consulted],
                "folders": self._folders_of(report),
                "names": around[:_HALF],
                "all": around if report.asked_all else None,
                "words": self._given_key,
                "fixes": any(finding.fix is not None for finding in report.findings),
                "findings": [_values(finding) for finding in report.findings],
            }
            self._changed = True

    def _folders_of(self, report: FileReport) -> list[list[str]]:
        """The folders of the files that a report depends on, with their modules: a new module may hide another."""
        folders = {os.path.dirname(one.path) for one in report.consulted}
        return [[folder, self._modules_in(folder)] for folder in sorted(folders)]

    def _modules_in(self, folder: str) -> str:
        if folder not in self._modules:
            self._modules[folder] = digest("\0".join(_modules_in(folder)).encode("utf-8", "surrogateescape"))
        return self._modules[folder]

    def _is_given_the_same(self, key: str, raw: bytes) -> bool:
        """Whether other modules give a text the same of torch as they did when the words had this key."""
        if key == self._given_key:
            return True
        then = self._words.get(key)
        return then is not None and not any(word.encode() in raw for word in self._given.symmetric_difference(then))

    def overlooked(self, around: str, ranges: list[str], find: Callable[[], Overlooked]) -> Overlooked:
        """The files of a run that only others show to be worth a look; `find` finds them where that is not known."""
        key = digest("\0".join([around, *ranges]).encode())
        known: Any = self._runs.get(key)
        if _is_overlooked(known):
            found = Overlooked(*known)
        else:
            if len(self._runs) >= _MOST_SETTINGS:
                self._runs.clear()
            found = find()
            self._runs[key], self._changed = found, True
        self._given, self._given_key = set(found.words), _words_key(found.words)
        if self._given_key not in self._words:
            if len(self._words) >= _MOST_SETTINGS:
                self._words.clear()
            self._words[self._given_key] = found.words
        return found

    def imports(self, file: SourceFile) -> tuple[bytes, bool] | None:
        """The import lines of a file that is as it was, and whether it is near torch.distributed."""
        entry = self._current(file, self.mark(file))
        return None if entry is None or entry[4] is None else (entry[4][0].encode("latin-1"), entry[4][1])

    def keep_imports(self, file: SourceFile, lines: bytes, *, near: bool) -> None:
        """Note the import lines of a file that was looked at."""
        entry = self._seen.get(os.path.abspath(file.path))
        if entry is not None:
            entry[4] = [lines.decode("latin-1"), near]

    def save(self) -> None:
        """Replace the file on disk by what is known now. Errors are ignored."""
        if not self._changed:
            return
        import tempfile

        forgotten = {path: entry for path, entry in self._known.items() if path not in self._seen}
        kept = forgotten if len(forgotten) <= _MOST_FORGOTTEN else {}
        held = {"format": _FORMAT, "runs": self._runs, "words": self._words, "files": {**kept, **self._seen}}
        text = json.dumps(held, separators=(",", ":"))
        with contextlib.suppress(OSError):
            descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(self._path))
            try:
                with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
                    stream.write(text)
                os.replace(temporary, self._path)
            except BaseException:
                os.unlink(temporary)
                raise

    def _current(self, file: SourceFile, mark: list[int] | None) -> list[Any] | None:
        """The entry of a file if the file has not changed since."""
        path = os.path.abspath(file.path)
        entry = self._known.get(path)
        if entry is None or mark is None:
            return None
        if entry[0] != mark:
            # It may have been touched, copied or checked out again with the same contents.
            if entry[0][0] != mark[0] or entry[1] != _digest_of(file.path):
                return None
            entry[0], self._changed = mark, True
        self._seen[path] = entry
        return entry

    def _entry(self, file: SourceFile, mark: list[int] | None, raw: bytes) -> list[Any] | None:
        """The entry of a file that was just linted; None if a later change of it could go unnoticed."""
        if mark is None or mark[0] != len(raw) or time.time_ns() - mark[1] < _FRESH_NS:
            return None
        path, now = os.path.abspath(file.path), digest(raw)
        entry = self._seen.get(path) or self._known.get(path)
        if entry is None or entry[1] != now:
            entry = [mark, now, [], {}, None]
        entry[0] = mark
        self._seen[path] = entry
        return entry


def default_folder() -> str:
    """The folder for caches that the operating system gives a user."""
    import platformdirs

    return platformdirs.user_cache_dir("fsdp-migrate", appauthor=False)


def _words_key(words: Iterable[str]) -> str:
    return digest("\0".join(words).encode())


@lru_cache(maxsize=16)
def _rules_key(settings: Settings) -> str:
    """The settings that choose among the rules."""
    return digest(repr((settings.select, settings.ignore, settings.seeks_hints)).encode())


def around_key(paths: Iterable[str], named: Sequence[str], settings: Iterable[Settings]) -> str:
    """A digest of the files that exist (first half), and of their times and sizes (second half).

    `paths` are absolute. `named` are the folders that the run was given.
    """
    from fsdp_migrate.workspace.modules.finder import Finder

    folders = set()
    names, contents = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    contents.update("".join(sorted(map(_rules_key, settings))).encode())
    for path in sorted(paths):
        names.update(os.fsencode(path) + b"\0")
        folders.add(os.path.dirname(path))
        with contextlib.suppress(OSError):
            status = os.stat(path)
            contents.update(b"%d %d %d\0" % (status.st_size, status.st_mtime_ns, status.st_ino))
    for folder in sorted(_with_those_above(folders, Finder(named))):
        names.update("\0".join([folder, *_modules_in(folder)]).encode("utf-8", "surrogateescape"))
    return names.hexdigest() + contents.hexdigest()


def _with_those_above(folders: Collection[str], finder: Finder) -> set[str]:
    """Folders, all above them in which their modules may be, and those beside them."""
    found: set[str] = set()
    for folder in folders:
        here, limit = folder, finder.limit(folder)
        while here not in found:
            found.add(here)
            if here != limit:
                here = os.path.dirname(here)
    above = found.difference(folders)
    beside = [os.path.join(one, name) for one in above for name in _modules_in(one) if "." not in name]
    return {*found, *beside, *(os.path.join(folder, "src") for folder in (*found, *beside))}


def _modules_in(folder: str) -> list[str]:
    """The names in a folder that may be of modules: what editors and tests leave there does not count."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".py") or "." not in name)
    except OSError:
        return []


def _key(file: SourceFile, settings: Settings, trace: str) -> str:
    chosen = (settings.select, settings.ignore, settings.ignored_here, settings.grades, settings.target)
    torch = (str(settings.torch), settings.torch.assumed, settings.torch.stated)
    return digest(repr((file.shown, torch, chosen, settings.seeks_hints, trace)).encode())


def _digest_of(path: str) -> str:
    """The digest of a file; that of nothing if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return digest(stream.read())
    except OSError:
        return digest(b"")


def _values(finding: Finding) -> list[Any]:
    return [getattr(finding, name) for name in _FIELDS]


def _finding(path: str, values: list[Any]) -> Finding:
    held = dict(zip(_FIELDS, values, strict=True))
    held["severity"], held["applicability"] = Severity(held["severity"]), Applicability(held["applicability"])
    held["span"], held["statement"] = Span(*held["span"]), Span(*held["statement"])
    return Finding(path=path, **held)


_FIELDS = (
    *("code", "name", "message", "severity", "applicability", "reason", "span", "statement"),
    *("line", "column", "end_line", "end_column", "url", "cell", "settled", "ran", "by_run"),
)


def _name() -> str:
    """The name of the cache file. It depends on the folder, on Python, and on the version of this program."""
    parts = [os.getcwd(), sys.version, __version__, str(_FORMAT)]
    package = os.path.dirname(os.path.dirname(__file__))
    for folder, _, names in os.walk(package):
        if not folder.endswith("__pycache__"):
            for name in sorted(names):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return digest("\0".join(parts).encode("utf-8", "surrogateescape"))


def _secure(folder: str) -> None:
    """Create the folder so that only the user can use it."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        raise CacheError(f"the cache folder {folder} cannot be used: {error.strerror}") from None
    if not _is_own(status):
        raise CacheError(f"the cache folder {folder} belongs to another user, or another user can write to it")


def _is_own(status: os.stat_result) -> bool:
    """Whether only the user can write it."""
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _load(path: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"files": {}, "runs": {}, "words": {}}
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as stream:
            status = os.fstat(descriptor)
            if not _is_own(status) or not stat.S_ISREG(status.st_mode):
                return nothing
            found: dict[str, Any] = json.load(stream)
        sound = found["format"] == _FORMAT and isinstance(found["runs"], dict)
        sound = sound and all(_is_texts(words) for words in found["words"].values())
        return found if sound and all(_is_entry(entry) for entry in found["files"].values()) else nothing
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return nothing


def _is_texts(held: Any) -> bool:
    return isinstance(held, list) and all(isinstance(text, str) for text in held)


def _is_overlooked(held: Any) -> bool:
    return isinstance(held, list) and len(held) == len(Overlooked._fields) and all(map(_is_texts, held))


def _is_entry(entry: Any) -> bool:
    mark, digest, rules, reports, imports = entry
    shaped = isinstance(digest, str) and isinstance(rules, list) and isinstance(reports, dict)
    shaped = shaped and (imports is None or (isinstance(imports[0], str) and isinstance(imports[1], bool)))
    return shaped and isinstance(mark, list) and len(mark) == 4
