"""Finds the files to check, reads them, and writes changed files without ever losing one."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import NOTEBOOK_SUFFIX, SUFFIXES, YAML_SUFFIXES, Source, SourceError, is_beside, is_script
from fsdp_migrate.workspace import disk, gitignore
from fsdp_migrate.workspace.gitignore import GitIgnore

SKIPPED_FOLDERS = frozenset(
    [
        *(".bzr", ".git", ".hg", ".svn"),
        *(".conda", ".direnv", ".nox", ".pixi", ".tox", ".venv", "node_modules", "site-packages", "venv"),
        *(".hypothesis", ".mypy_cache", ".pytest_cache", ".pytype", ".ruff_cache", "__pycache__"),
        *(".eggs", ".ipynb_checkpoints", "__pypackages__"),
    ]
)

# `mylib.dist` and `myenv.env` are packages in real training code, so these names alone decide nothing: such a folder
# is skipped only while it holds no Python file of its own.
_SKIPPED_UNLESS_CODE = tuple(f"{os.sep}{name}{os.sep}" for name in ("_build", "build", "dist", "env"))

# `.pyw`, `.pyx` and their kin say Python as well as the suffixes that folders are searched for.
_PYTHON_SUFFIXES = (".py", NOTEBOOK_SUFFIX)
_INTERPRETER = re.compile(rb"#![^\r\n]+")

ENVIRONMENT_MARKS = frozenset(["conda-meta", "pyvenv.cfg"])


# One of these is in a file beside the code that is worth reading.
_IN_YAML = (b"fsdp_config", b"fsdp_version", b"parallelism_config")
_IN_SCRIPTS = (b"torch.distributed.launch", b"fsdp")

# What stands in a printable path for everything that cannot be printed.
REPLACEMENT = "\ufffd"


class FileError(Exception):
    """A file cannot be read or written. The message is one line for the user."""


class Failure(NamedTuple):
    """A file or folder that was not checked, and why."""

    path: str
    message: str


class SourceFile(NamedTuple):
    """A file to check: its path, its name in reports, and its bytes if they are not on disk.

    `root` is the real path of the folder that was named, None if the file itself was named.
    """

    path: str
    shown: str
    raw: bytes | None = None
    root: str | None = None


class Discovery(NamedTuple):
    """The files found, each once and in order of path, the failures, and the folders that were named.

    `leftovers` are files that a run left behind that was killed while writing.
    """

    files: tuple[SourceFile, ...]
    failures: tuple[Failure, ...] = ()
    folders: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    @property
    def code(self) -> tuple[SourceFile, ...]:
        """The files that hold Python, in the same order."""
        return tuple(file for file in self.files if not is_beside(file.shown))

    def joined(self, files: Iterable[SourceFile]) -> Discovery:
        """These files and others."""
        known = set(self.files)
        more = [file for file in files if file not in known]
        return self._replace(files=in_order((*self.files, *more))) if more else self


def in_order(files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    """Files in order of path."""
    return tuple(sorted(files, key=lambda file: file.shown.split(os.sep)))


class _Entry(NamedTuple):
    """A file or folder during the walk: path, shown path, real path, and the ignore files that apply to it.

    The paths of a folder end in a separator.
    """

    path: str
    shown: str
    real: str
    ignores: tuple[GitIgnore, ...]
    named: bool = False


class PathFilter(Protocol):
    """What the configuration says about absolute paths; that of a folder ends in a separator."""

    def leaves_out(self, path: str) -> bool:
        """Whether the file or folder is left out itself."""

    def takes(self, path: str) -> bool:
        """Whether a file is one to check, unless it is excluded."""

    @property
    def scripts(self) -> bool:
        """Whether scripts are checked that nobody named."""


# What the configuration of a folder (whose path is absolute, and whose entries are given where they are known) says
# about files; None where it says nothing.
PathFilters = Callable[[str, Collection[str] | None], PathFilter | None]


def _no_choices(_folder: str, _names: Collection[str] | None) -> PathFilter | None:
    return None


def discover(paths: Sequence[str], choices: PathFilters = _no_choices, *, force_exclude: bool = False) -> Discovery:
    """Find the Python files and notebooks that `paths` mean.

    A file that is named is checked whatever its suffix is and even if it is ignored, unless it is clearly in another
    language. A folder that is named is searched for `.py`, `.pyi`, `.ipynb`, and YAML that configures FSDP, without
    environments, build results, and what `.gitignore` files up to the root of the repository ignore. Links to folders
    below it are not followed.
    `choices` add and exclude files in folders; with `force_exclude` they exclude files that are named, too.
    """
    walk = _Walk(choices)
    for path in paths:
        shown = _shown(path)
        if force_exclude and left_out(path, choices):
            continue
        if os.path.isdir(path):
            walk.folder(path, "" if shown == "." else shown)
        elif (told := _told_from_python(path)) is not None:
            walk.failures.append(Failure(shown, told))
        else:
            walk.add(SourceFile(path, shown), os.path.realpath(path), os.path.islink(path))
    files = in_order(file for file, _ in walk.found.values())
    failures = tuple(sorted(walk.failures, key=lambda failure: failure.path))
    folders = tuple(path for path in paths if os.path.isdir(path))
    return Discovery(files, failures, folders, tuple(walk.leftovers))


def other_language(path: str, raw: bytes) -> str | None:
    """Why a text is not Python; None if it is, or if neither its name nor its first line says otherwise."""
    suffix = os.path.splitext(path)[1]
    program = _INTERPRETER.match(raw)
    if (
        is_beside(path)
        or suffix.startswith(_PYTHON_SUFFIXES)
        or (not suffix and program is None)
        or b"python" in raw.partition(b"\n")[0]
    ):
        return None
    try:
        Source(raw).tree  # noqa: B018 - parsing is what may fail
    except (SourceError, SyntaxError):
        says = f"its name ends in {printable(suffix)}" if suffix else "its first line names another program"
        return f"not Python ({says}, and it does not parse): only Python files and notebooks are checked"
    return None


def _told_from_python(path: str) -> str | None:
    if path.endswith(SUFFIXES) or is_beside(path):
        return None
    try:
        return other_language(path, disk.contents(path))
    except OSError:
        return None  # which is told when it is read


def left_out(path: str, choices: PathFilters) -> bool:
    """Whether `choices` exclude a path or a folder above it."""
    here = os.path.abspath(path)
    entry = os.path.join(here, "") if os.path.isdir(here) else here
    while (choice := choices(os.path.dirname(here), None)) is not None:
        if choice.leaves_out(entry):
            return True
        if here == os.path.dirname(here):
            break
        here = os.path.dirname(here)
        entry = os.path.join(here, "")
    return False


def read(file: SourceFile) -> bytes:
    """The bytes of `file`.

    Raises:
        FileError: it cannot be read, or is no regular file (reading a pipe would block, and cannot be written back).
    """
    if file.raw is not None:
        return file.raw
    try:
        return disk.contents(file.path)
    except OSError as error:
        raise FileError(f"cannot be read: {_cause(error)}") from None


def write(file: SourceFile, new: bytes, old: bytes) -> str:
    """Replace the contents of `file`, which must still be `old`, by `new`: completely or not at all.

    Mode and, if permitted, owner are kept. For a symbolic link that was named, or that leads to another file in the
    folder that was named, the target is written and the link stays. Returns the folder to `sync`.

    Raises:
        FileError: it changed since it was read, is read-only, out of bounds, or cannot be written. It is as it was.
    """
    from fsdp_migrate import replacing  # most runs write nothing

    target = writable(file)
    with unwritten():
        replacing.replace(target, new, old)
    return os.path.dirname(target)


def writable(file: SourceFile) -> str:
    """The real path that is written for `file`.

    Raises:
        FileError: it is read-only or out of bounds.
    """
    target = os.path.realpath(file.path)
    if file.root is not None and not target.startswith(os.path.join(file.root, "")):
        raise FileError(f"not rewritten: it is a link to {printable(target)}; name that file to have it rewritten")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise FileError("not rewritten: the file is read-only")
    return target


@contextlib.contextmanager
def unwritten() -> Iterator[None]:
    """Tell the user why a file is not written."""
    from fsdp_migrate import replacing

    try:
        yield
    except replacing.ChangedError:
        raise FileError("not rewritten: it changed while fsdp-migrate was running; run again") from None
    except OSError as error:
        raise FileError(f"cannot be written: {_cause(error)}") from None


def sync(folders: Iterable[str]) -> None:
    """Make the files written to these folders durable, once per folder, because that is slow."""
    from fsdp_migrate import replacing

    for folder in sorted(set(folders)):
        replacing.sync(folder)


class _Walk:
    """Collects files by their real path, so that each comes once."""

    def __init__(self, choices: PathFilters) -> None:
        self.choices = choices
        self.found: dict[str, tuple[SourceFile, bool]] = {}
        self.failures: list[Failure] = []
        self.leftovers: list[str] = []
        self.root = ""

    def add(self, file: SourceFile, real: str, is_link: bool) -> None:
        """Add `file`, which replaces links to it."""
        known = self.found.get(real)
        if known is None or (known[1] and not is_link):
            self.found[real] = (file, is_link)

    def folder(self, path: str, shown: str) -> None:
        """Add the files below the folder that the user named `path`."""
        real = self.root = os.path.realpath(path)
        path, shown, inside = (os.path.join(one, "") for one in (path, shown, real))
        waiting = [_Entry(path, shown, inside, self._ignores_above(real), named=True)]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder.path) as entries:
                    waiting += self._look_into(folder, list(entries))
            except OSError as error:
                self.failures.append(Failure(_shown(folder.shown), f"cannot be read: {_cause(error)}"))

    def _look_into(self, folder: _Entry, entries: list[os.DirEntry[str]]) -> list[_Entry]:
        """Add the files among `entries`; returns the folders to search next."""
        names = {entry.name for entry in entries}
        if not folder.named and _is_artefact(folder, names):
            return []
        self.leftovers += disk.leftovers(folder.path, names)
        folder = self._with_own_ignores(folder, names)
        here = os.path.abspath(folder.path)
        choice = self.choices(here, names)
        deeper = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name in SKIPPED_FOLDERS or (choice and choice.leaves_out(os.path.join(here, entry.name, ""))):
                    continue
                below = _below(folder, entry.name + os.sep)
                if not gitignore.ignored(folder.ignores, below.real):
                    deeper.append(below)
            elif _wanted(choice, here, entry.name):
                below = _below(folder, entry.name)
                ignored = gitignore.ignored(folder.ignores, below.real)
                if not ignored and (not is_beside(entry.name) or _is_marked(entry)):
                    self._take(entry, below)
        return deeper

    def _take(self, entry: os.DirEntry[str], at: _Entry) -> None:
        if _is_file(entry):
            link = entry.is_symlink()
            file = SourceFile(at.path, at.shown, root=self.root)
            self.add(file, os.path.realpath(at.path) if link else at.real, link)

    def _with_own_ignores(self, folder: _Entry, names: set[str]) -> _Entry:
        # A repository inside a repository (a submodule) is ruled by its own files alone.
        ignores = () if ".git" in names else folder.ignores
        if gitignore.NAME in names:
            ignores += self._load(folder.real, folder.shown)
        return folder if ignores is folder.ignores else folder._replace(ignores=ignores)

    def _load(self, real: str, shown: str) -> tuple[GitIgnore, ...]:
        try:
            return (gitignore.load(real),)
        except OSError as error:
            self.failures.append(Failure(os.path.join(shown, gitignore.NAME), f"cannot be read: {_cause(error)}"))
            return ()

    def _ignores_above(self, real: str) -> tuple[GitIgnore, ...]:
        """The ignore files from the root of the repository down to the parent of `real`.

        None outside a repository, and none if they ignore `real` itself: it was named, so it is wanted.
        """
        ignores: tuple[GitIgnore, ...] = ()
        for folder in gitignore.parents_in_repository(real):
            if gitignore.ignored(ignores, os.path.join(folder, "")):
                return ()
            if os.path.lexists(os.path.join(folder, gitignore.NAME)):
                ignores += self._load(folder, printable(folder))
        return () if gitignore.ignored(ignores, os.path.join(real, "")) else ignores


def _wanted(choice: PathFilter | None, folder: str, name: str) -> bool:
    if choice is None:
        return name.endswith((*SUFFIXES, *YAML_SUFFIXES))
    path = os.path.join(folder, name)
    return (choice.takes(path) or (choice.scripts and is_script(path))) and not choice.leaves_out(path)


def _is_marked(entry: os.DirEntry[str]) -> bool:
    """Whether a file beside the code has a word that a rule looks for; one that cannot be read is no concern."""
    try:
        raw = disk.contents(entry.path) if entry.is_file() else b""
    except OSError:
        return False
    return any(word in raw for word in (_IN_SCRIPTS if is_script(entry.name) else _IN_YAML))


def _is_artefact(folder: _Entry, names: set[str]) -> bool:
    """Whether a folder is an environment or a build result."""
    if not names.isdisjoint(ENVIRONMENT_MARKS):
        return True
    return folder.path.endswith(_SKIPPED_UNLESS_CODE) and not any(name.endswith(SUFFIXES) for name in names)


def _below(folder: _Entry, name: str) -> _Entry:
    """What is called so in a folder; the name of a folder ends in a separator."""
    return _Entry(folder.path + name, folder.shown + printable(name), folder.real + name, folder.ignores)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads back to itself
        return False


def _shown(path: str) -> str:
    # As pathlib writes it, which takes longer to load than a file takes to look at.
    parts = [part for part in path.replace(os.altsep or os.sep, os.sep).split(os.sep) if part not in ("", ".")]
    root = os.sep if path.startswith(os.sep) else ""
    return printable(root + os.sep.join(parts) or ".")


def printable(path: str) -> str:
    """`path` with undecodable bytes and control characters replaced, so that it can be printed on one line."""
    if path.isprintable():  # undecodable bytes are not
        return path
    readable = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return readable if readable.isprintable() else "".join(c if c.isprintable() else REPLACEMENT for c in readable)


def _cause(error: OSError) -> str:
    return error.strerror or str(error)
