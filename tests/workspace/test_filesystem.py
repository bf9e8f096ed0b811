from __future__ import annotations

import os
import random
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate import replacing
from fsdp_migrate.commands.cli import cli
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.filesystem import Failure, FileError, SourceFile, discover


def tree(root: Path, *paths: str) -> Path:
    """Make files at `paths` under `root`."""
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x = 1\n")
    return root


def ignore(root: Path, *lines: str, at: str = "") -> None:
    folder = root / at
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("\n".join(lines) + "\n")


def repository(root: Path) -> Path:
    (root / ".git").mkdir(parents=True)
    return root


def found(root: Path, *paths: str) -> list[str]:
    discovery = discover([str(root / path) for path in paths] or [str(root)])
    assert discovery.failures == ()
    return [Path(file.shown).relative_to(root).as_posix() for file in discovery.files]


# --- walking ---------------------------------------------------------------------------------------------------------


def test_a_folder_gives_its_python_files_in_order_of_path(tmp_path: Path) -> None:
    tree(tmp_path, "b.py", "a/z.py", "a-b.py", "a/b/c.pyi", "README.md", "a/data.json", "a/run.sh")
    assert found(tmp_path) == ["a/b/c.pyi", "a/z.py", "a-b.py", "b.py"]


def test_a_named_file_is_taken_whatever_its_suffix_and_whatever_ignores_it(tmp_path: Path) -> None:
    tree(repository(tmp_path), "script", "build/gen.py", ".venv/x.py")
    ignore(tmp_path, "*")
    assert found(tmp_path, "script", "build/gen.py", ".venv/x.py") == [".venv/x.py", "build/gen.py", "script"]


def test_build_and_environment_folders_are_passed_over(tmp_path: Path) -> None:
    skipped = [
        ".git",
        ".hg",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        "node_modules",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
    ]
    tree(tmp_path, "keep.py", *(f"{folder}/x.py" for folder in [*skipped, "site-packages", ".eggs"]))
    tree(tmp_path, "build/lib/pkg/x.py", "dist/pkg/x.py", "env/lib/x.py")
    assert found(tmp_path) == ["keep.py"]


def test_a_package_called_like_a_build_folder_is_looked_into(tmp_path: Path) -> None:
    tree(tmp_path, "mylib/dist/__init__.py", "mylib/dist/fsdp/save.py", "rl/env/cartpole.py", "build/lib/pkg/x.py")
    assert found(tmp_path) == ["mylib/dist/__init__.py", "mylib/dist/fsdp/save.py", "rl/env/cartpole.py"]


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_is_known_by_its_mark_whatever_its_name(tmp_path: Path, mark: str) -> None:
    tree(tmp_path, "keep.py", f"torch21/{mark}", "torch21/lib/python3.11/x.py", "torch21/y.py")
    assert found(tmp_path) == ["keep.py"]


@pytest.mark.parametrize("folder", ["build", ".venv", "venv/lib/site-packages"])
def test_a_named_folder_is_walked_even_if_it_would_be_passed_over(tmp_path: Path, folder: str) -> None:
    tree(repository(tmp_path), f"{folder}/pkg/x.py", f"{folder}/pyvenv.cfg")
    ignore(tmp_path, "build/", ".venv", "venv")
    assert found(tmp_path, folder) == [f"{folder}/pkg/x.py"]


def test_no_file_comes_twice(tmp_path: Path) -> None:
    tree(tmp_path, "pkg/a.py", "pkg/b.py")
    assert found(tmp_path, "pkg/b.py", "pkg", "", "pkg/a.py") == ["pkg/a.py", "pkg/b.py"]


def test_a_link_to_a_file_that_is_there_too_gives_the_file_alone(tmp_path: Path) -> None:
    tree(tmp_path, "z.py", "elsewhere.txt")
    (tmp_path / "a.py").symlink_to("z.py")
    (tmp_path / "linked.py").symlink_to("elsewhere.txt")
    assert found(tmp_path) == ["linked.py", "z.py"]


def test_links_to_folders_are_not_followed_but_a_named_one_is(tmp_path: Path) -> None:
    tree(tmp_path, "real/a.py")
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "alias").symlink_to("real", target_is_directory=True)
    (tmp_path / "alias.py").symlink_to("real", target_is_directory=True)
    assert found(tmp_path) == ["real/a.py"]
    assert found(tmp_path, "alias") == ["alias/a.py"]


def test_broken_links_and_pipes_are_passed_over_when_walking(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    (tmp_path / "gone.py").symlink_to("nowhere")
    (tmp_path / "self.py").symlink_to("self.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert found(tmp_path) == ["a.py"]


def test_paths_are_shown_as_they_were_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "src/a.py", "b.py")
    monkeypatch.chdir(tmp_path)
    assert [file.shown for file in discover(["."]).files] == ["b.py", "src/a.py"]
    assert [file.shown for file in discover(["./src/"]).files] == ["src/a.py"]
    monkeypatch.chdir(tmp_path / "src")
    assert [file.shown for file in discover([".."]).files] == ["../b.py", "../src/a.py"]


def test_a_name_that_cannot_be_printed_is_shown_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9\n\x1b[31m.py")
    Path(name).write_text("x = 1\n")
    (file,) = discover(["."]).files
    assert file.shown == "caf\ufffd\ufffd\ufffd[31m.py"
    assert filesystem.read(file) == b"x = 1\n"


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "open/a.py", "shut/b.py")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    discovery = discover([str(tmp_path)])
    assert [Path(file.shown).name for file in discovery.files] == ["a.py"]
    assert discovery.failures == (Failure(str(tmp_path / "shut"), "cannot be read: Permission denied"),)


# --- .gitignore ------------------------------------------------------------------------------------------------------


def test_ignore_files_of_inner_folders_win(tmp_path: Path) -> None:
    tree(repository(tmp_path), "gen/a.py", "gen/keep.py", "gen/sub/b.py", "gen/sub/keep.py", "x_pb2.py", "sub/x_pb2.py")
    ignore(tmp_path, "gen/*", "!gen/sub", "*_pb2.py")
    ignore(tmp_path, "b.py", at="gen/sub")
    ignore(tmp_path, "!x_pb2.py", at="sub")
    assert found(tmp_path) == ["gen/sub/keep.py", "sub/x_pb2.py"]


def test_nothing_below_an_ignored_folder_can_come_back(tmp_path: Path) -> None:
    tree(repository(tmp_path), "out/a.py", "out/keep.py")
    ignore(tmp_path, "out/", "!out/keep.py")
    ignore(tmp_path, "!keep.py", at="out")
    assert found(tmp_path) == []


def test_ignore_files_above_a_named_folder_count_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    ignore(tmp_path, "*.py")
    root = repository(tmp_path / "repo")
    tree(root, "src/pkg/a.py", "src/pkg/b.py", "src/pkg/c.py")
    ignore(root, "b.py", "/src/pkg/c.py")
    assert found(root, "src/pkg") == ["src/pkg/a.py"]
    assert found(tmp_path, "repo") == ["repo/src/pkg/a.py"]


def test_without_a_repository_the_ignore_files_below_count(tmp_path: Path) -> None:
    ignore(tmp_path, "*.py")
    tree(tmp_path / "a", "x.py", "gen/y.py")
    ignore(tmp_path / "a", "gen")
    assert found(tmp_path / "a") == ["x.py"]


def test_a_submodule_is_ruled_by_its_own_ignore_files(tmp_path: Path) -> None:
    root = repository(tmp_path)
    tree(root, "third/lib/a.py", "third/lib/b.py", "a.py")
    ignore(root, "a.py")
    (root / "third/lib/.git").write_text("gitdir: ../../.git/modules/lib\n")
    ignore(root, "b.py", at="third/lib")
    assert found(root) == ["third/lib/a.py"]


def test_a_line_that_is_no_pattern_is_passed_over(tmp_path: Path) -> None:
    tree(repository(tmp_path), "a.py", "b.py")
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbfa.py\r\n!\r\n\xff\xfe\r\n# b.py\r\n")
    assert found(tmp_path) == ["b.py"]


def test_an_ignore_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    tree(repository(tmp_path), "a.py")
    (tmp_path / ".gitignore").mkdir()
    discovery = discover([str(tmp_path)])
    assert [Path(file.shown).name for file in discovery.files] == ["a.py"]
    assert discovery.failures == (Failure(str(tmp_path / ".gitignore"), "cannot be read: Is a directory"),)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_ignored_agrees_with_git(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "ab", "gen", "a.b"]
    for _ in range(60):
        folders = [chance.choice(names) for _ in range(chance.randrange(4))]
        tree(tmp_path, "/".join([*folders, chance.choice(names) + ".py"]))
    patterns = ["*.py", "a", "b/", "/gen", "!a.py", "!gen/", "a/*", "**/gen", "!ab.py", "gen/**", "a/**/b", "?b.py",
                "[ag]*.py", "!/a/*.py", "/*/b", "a.b/", "# a", "\\!x", "b.py  ", "!*/", "/a/b/gen.py"]  # fmt: skip
    for folder in [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir() and chance.random() < 0.2)]:
        ignore(folder, *chance.sample(patterns, chance.randrange(1, 5)))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    listing = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "--others", "--exclude-standard", "*.py"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert sorted(found(tmp_path)) == sorted(listing.stdout.split())


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_pipe_that_is_named_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (file,) = discover([str(tmp_path / "pipe")]).files
    with pytest.raises(FileError, match=r"^cannot be read: not a regular file$"):
        filesystem.read(file)


def test_a_file_that_went_away_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"^cannot be read: No such file or directory$"):
        filesystem.read(SourceFile(str(tmp_path / "gone.py"), "gone.py"))


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> SourceFile:
    path = tmp_path / "a.py"
    path.write_bytes(b"old\r\n")
    return SourceFile(str(path), "a.py")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_writing_replaces_the_bytes_and_leaves_nothing_else(tmp_path: Path, target: SourceFile) -> None:
    filesystem.write(target, b"new\n", b"old\r\n")
    assert contents(tmp_path) == {"a.py": b"new\n"}


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o664])
def test_writing_keeps_the_mode_whatever_the_umask(tmp_path: Path, target: SourceFile, mode: int) -> None:
    os.chmod(target.path, mode)
    umask = os.umask(0o077)
    try:
        filesystem.write(target, b"new\n", b"old\r\n")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(target.path).st_mode) == mode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_writing_keeps_the_owner(target: SourceFile) -> None:
    os.chown(target.path, 12345, 23456)
    filesystem.write(target, b"new\n", b"old\r\n")
    status = os.stat(target.path)
    assert (status.st_uid, status.st_gid) == (12345, 23456)


def test_writing_goes_on_where_the_owner_cannot_be_kept(target: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    filesystem.write(target, b"new\n", b"old\r\n")
    assert Path(target.path).read_bytes() == b"new\n"


def test_of_a_link_the_target_is_written_and_the_link_stays(tmp_path: Path, target: SourceFile) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "l.py"
    link.symlink_to("../a.py")
    filesystem.write(SourceFile(str(link), "l.py"), b"new\n", b"old\r\n")
    assert os.readlink(link) == "../a.py"
    assert Path(target.path).read_bytes() == b"new\n"
    assert [path.name for path in link.parent.iterdir()] == ["l.py"]


def test_a_file_that_changed_since_it_was_read_is_not_written(tmp_path: Path, target: SourceFile) -> None:
    Path(target.path).write_bytes(b"edited\n")
    with pytest.raises(FileError, match=r"^not rewritten: it changed while fsdp-migrate was running; run again$"):
        filesystem.write(target, b"new\n", b"old\r\n")
    assert contents(tmp_path) == {"a.py": b"edited\n"}


def test_a_file_that_changes_while_it_is_written_is_not_lost(
    tmp_path: Path, target: SourceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def edit_meanwhile(descriptor: int) -> None:
        Path(target.path).write_bytes(b"edited\n")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", edit_meanwhile)
    with pytest.raises(FileError, match="it changed"):
        filesystem.write(target, b"new\n", b"old\r\n")
    assert contents(tmp_path) == {"a.py": b"edited\n"}


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_trouble_while_writing_loses_nothing_and_leaves_nothing(
    tmp_path: Path, target: SourceFile, monkeypatch: pytest.MonkeyPatch, step: str, trouble: BaseException
) -> None:
    def fail(*_arguments: object) -> None:
        raise trouble

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises((FileError, KeyboardInterrupt)) as caught:
            filesystem.write(target, b"new\n", b"old\r\n")
    if isinstance(trouble, OSError):
        assert str(caught.value) == "cannot be written: No space left on device"
    assert contents(tmp_path) == {"a.py": b"old\r\n"}


def test_a_read_only_file_is_not_replaced(tmp_path: Path, target: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(FileError, match=r"^not rewritten: the file is read-only$"):
        filesystem.write(target, b"new\n", b"old\r\n")
    assert contents(tmp_path) == {"a.py": b"old\r\n"}


@pytest.mark.parametrize("command", [("rewrite",), ("lint", "--add-noqa")])
def test_a_folder_is_synced_once_when_the_last_file_in_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nFSDP(m, fsdp_auto_wrap_policy=p)\n"
    paths = [tmp_path / "one" / "a.py", tmp_path / "one" / "b.py", tmp_path / "two" / "c.py"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    synced: list[tuple[str, bool]] = []

    def sync(folder: str) -> None:
        synced.append((Path(folder).name, all(path.read_text() != text for path in paths)))

    monkeypatch.setattr(replacing, "sync", sync)
    CliRunner().invoke(cli, [*command, str(tmp_path)])
    assert synced == [("one", True), ("two", True)]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("run.zsh", "set -e\npython -m torch.distributed.launch train.py\n", "its name ends in .zsh"),
        ("conf.toml", "fsdp = [FSDP\n", "its name ends in .toml"),
        ("launch", "#!/bin/bash\npython -m torch.distributed.launch\n", "its first line names another program"),
    ],
)
def test_a_named_file_in_another_language_is_told_to_be_that(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    found = discover([str(tmp_path / name)])
    assert found.files == ()
    (failure,) = found.failures
    assert failure.message == f"not Python ({says}, and it does not parse): only Python files and notebooks are checked"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sh", "#!/bin/sh\nx = 1\n"),
        ("train", "print 'x'\n"),
        ("train", "#!/usr/bin/env python3\nprint 'x'\n"),
        ("train.pyw", "print 'x'\n"),
        ("train.py", "#!/bin/bash\nls -l\n"),
    ],
)
def test_what_may_be_python_is_taken_though_it_does_not_parse(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert [file.path for file in discover([str(tmp_path / name)]).files] == [str(tmp_path / name)]
