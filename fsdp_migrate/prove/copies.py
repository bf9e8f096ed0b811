"""Clean copies of a project: as a commit has it, as the working tree has it, or with some texts replaced."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

LIMIT = 1_000_000_000  # bytes of a copy
_GIT_STATE = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE")  # set where a hook of git runs this


class CopyError(ValueError):
    """A copy cannot be made; the message is one line for the user."""


@dataclass(frozen=True)
class Project:
    """The repository that a folder is in.

    `root` is its real path, `inside` the folder's place in it. At the places `shared` copies have links to the user's
    own files.
    """

    root: Path
    inside: PurePath
    shared: tuple[PurePath, ...] = ()

    def is_shared(self, path: PurePath) -> bool:
        """Whether a file is in what is linked."""
        return any(path.is_relative_to(shared) for shared in self.shared)


def find_project(folder: Path, shared: Iterable[Path] = ()) -> Project:
    """The project that `folder` is in.

    Raises:
        CopyError: it is in no git repository, or a shared path is not there or not in the repository.
    """
    try:
        root = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n"))).resolve()
    except CopyError as error:
        if "not a git repository" not in str(error):
            raise
        message = f"{folder}: not in a git repository: both versions are copies of what git knows (git init, git add)"
        raise CopyError(message) from None
    return Project(root, PurePath(folder.resolve().relative_to(root)), tuple(_shared(path, root) for path in shared))


def commit_of(project: Project, name: str) -> str | None:
    """The commit that a name stands for in a project, None if there is none."""
    try:
        return _git(project.root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()
    except CopyError:
        return None


def _shared(path: Path, root: Path) -> PurePath:
    if not path.exists():
        raise CopyError(f"--shared {path}: not there")
    # A link is shared as the place that it has, not as the place that it leads to.
    place = Path(os.path.normpath(path.parent.resolve() / path.name))
    if not place.is_relative_to(root) or place == root:
        raise CopyError(f"--shared {path}: not in {root}: programs reach what is outside by its own path")
    return PurePath(place.relative_to(root))


def copy_commit(project: Project, commit: str, target: Path) -> None:
    """Write the files of a commit, and of its submodules, into the new folder `target`.

    As `git archive` does, but with the files that are left out of releases (`export-ignore`).

    Raises:
        CopyError: git does not know the commit, or it is too large.
    """
    known = commit_of(project, commit)
    if known is None:
        raise CopyError(f"{commit}: git knows no such commit here")
    files = list(_committed(project, project.root, known, PurePath()))
    _check_size(commit, {file.place: file.size for file in files})
    target.mkdir(parents=True)
    for repository in dict.fromkeys((file.repository, file.commit, file.prefix) for file in files):
        _check_out(*repository, [f for f in files if (f.repository, f.commit, f.prefix) == repository], target)
    _link(project, target)


@dataclass(frozen=True)
class _Committed:
    """A file of a commit: the repository, where that is in the project, and the file's place in it."""

    repository: Path
    commit: str
    prefix: PurePath
    path: bytes
    size: int

    @property
    def place(self) -> PurePath:
        return self.prefix / os.fsdecode(self.path)


def _committed(project: Project, repository: Path, commit: str, prefix: PurePath) -> Iterator[_Committed]:
    for entry in _git(repository, "ls-tree", "-r", "-z", "-l", "--full-tree", commit).split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        _, kind, digest, size = about.split()
        place = prefix / os.fsdecode(path)
        if project.is_shared(place):
            continue
        if kind == b"blob":
            yield _Committed(repository, commit, prefix, path, int(size))
        elif (module := repository / os.fsdecode(path)).joinpath(".git").exists():
            try:
                yield from _committed(project, module, digest.decode(), place)
            except CopyError:
                told = f"{place}: this submodule has no commit {digest.decode()[:12]}: run 'git fetch' in it"
                raise CopyError(told) from None


def _check_out(repository: Path, commit: str, prefix: PurePath, files: list[_Committed], target: Path) -> None:
    index = target.parent / f"{target.name}.index"
    environment = {**_environment(), "GIT_INDEX_FILE": str(index)}
    try:
        _git(repository, "read-tree", commit, environment=environment)
        into = os.path.join(target, prefix, "")
        names = b"".join(file.path + b"\0" for file in files)
        _git(repository, "checkout-index", "-z", "--stdin", f"--prefix={into}", given=names, environment=environment)
    finally:
        index.unlink(missing_ok=True)


def copy_working_tree(project: Project, target: Path) -> None:
    """Write what the working tree has, tracked or not, and git does not ignore, into the new folder `target`.

    Raises:
        CopyError: it is too large, or a file cannot be read.
    """
    files = {place: (project.root / place).lstat() for place in _present(project, project.root, PurePath())}
    _check_size("the working tree", {place: status.st_size for place, status in files.items()})
    target.mkdir(parents=True)
    for place, status in files.items():
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            continue
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(project.root / place, target / place, follow_symlinks=False)
        except OSError as error:
            raise CopyError(f"{place}: cannot be copied: {error.strerror}") from None
    _link(project, target)


def _present(project: Project, repository: Path, prefix: PurePath) -> Iterator[PurePath]:
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in dict.fromkeys(listed.split(b"\0")[:-1]):
        place = prefix / os.fsdecode(name)
        path = project.root / place
        if project.is_shared(place) or not os.path.lexists(path):
            continue
        if not path.is_dir() or path.is_symlink():
            yield place
        elif path.joinpath(".git").exists():
            yield from _present(project, path, place)


def _check_size(what: str, sizes: Mapping[PurePath, int]) -> None:
    total = sum(sizes.values())
    if total <= LIMIT:
        return
    folders: dict[str, int] = {}
    for place, size in sizes.items():
        folders[place.parts[0]] = folders.get(place.parts[0], 0) + size
    largest = max(folders, key=lambda name: folders[name])
    told = f"{what} has {total / 1e9:.1f} GB of files, most of them in {largest} ({folders[largest] / 1e9:.1f} GB)"
    raise CopyError(f"{told}: give what programs only read as --shared PATH, which is linked instead of copied")


def _link(project: Project, target: Path) -> None:
    for shared in project.shared:
        (target / shared).parent.mkdir(parents=True, exist_ok=True)
        (target / shared).symlink_to(project.root / shared)


def copy_copy(source: Path, target: Path) -> None:
    """Copy a copy, links as links."""
    shutil.copytree(source, target, symlinks=True)


def lay_over(target: Path, texts: Mapping[PurePath, bytes]) -> None:
    """Replace files of a copy."""
    for place, text in texts.items():
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_bytes(text)


def copy_files(source: Path, target: Path) -> None:
    """Copy a folder that a program wrote into, without the sockets and pipes that it left."""
    shutil.copytree(
        source,
        target,
        symlinks=True,
        ignore=lambda folder, names: [name for name in names if _is_special(Path(folder) / name)],
    )


def _is_special(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def carry_over(ran: Path, clean: Path, target: Path) -> None:
    """Put into `target` what a program wrote in the copy `ran`, which began as `clean`."""
    for folder, names, files in os.walk(ran):
        inside = Path(folder).relative_to(ran)
        for name in [*files, *(name for name in names if (Path(folder) / name).is_symlink())]:
            source, known = ran / inside / name, clean / inside / name
            if not _is_special(source) and _is_written(source, known):
                (target / inside).mkdir(parents=True, exist_ok=True)
                (target / inside / name).unlink(missing_ok=True)
                shutil.copy2(source, target / inside / name, follow_symlinks=False)


def _is_written(file: Path, known: Path) -> bool:
    if file.is_symlink() or known.is_symlink():
        return not known.is_symlink()
    if not known.exists() or file.stat().st_size != known.stat().st_size:
        return True
    # A copy keeps the time of change; and a checkout is copied before it runs.
    return file.stat().st_mtime_ns != known.stat().st_mtime_ns and file.read_bytes() != known.read_bytes()


def _command(folder: Path) -> list[str]:
    return ["git", "-C", str(folder)]


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_STATE}
    # Nothing is written into the user's repository, not even what git remembers about files.
    return {**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _git(folder: Path, *words: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
    """What git prints.

    Raises:
        CopyError: it says no, or is not there.
    """
    try:
        done = subprocess.run(
            [*_command(folder), *words],
            input=given,
            capture_output=True,
            env=environment or _environment(),
            check=False,
        )
    except FileNotFoundError:
        raise CopyError("git is not installed: both versions are copies that it makes") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
        raise CopyError(f"git {words[0]} in {folder}: {said[-1]}")
    return done.stdout
