"""Copies of a project, and what two of them differ in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fsdp_migrate.prove import copies
from fsdp_migrate.prove.changes import changed_lines
from fsdp_migrate.prove.copies import (
    CopyError,
    carry_over,
    copy_commit,
    copy_copy,
    copy_files,
    copy_working_tree,
    find_project,
)
from fsdp_migrate.prove.subject import differing


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit, and changes since."""
    root = tmp_path / "tree"
    (root / "lib").mkdir(parents=True)
    (root / ".gitignore").write_text("data/\n*.so\n")
    (root / ".gitattributes").write_text("lib/left.py export-ignore\n")
    for name in ("train.py", "lib/left.py", "gone.py"):
        (root / name).write_text("old = 1\n")
    (root / "link").symlink_to("train.py")
    os.chmod(root / "train.py", 0o755)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    (root / "train.py").write_text("new = 1\n")
    (root / "added.py").write_text("")
    (root / "gone.py").unlink()
    (root / "data").mkdir()
    (root / "data" / "a.bin").write_bytes(b"1")
    (root / "fast.so").write_bytes(b"")
    os.mkfifo(root / "pipe")
    return root


def seen(folder: Path) -> dict[str, bytes | str]:
    """Every file of a folder; links as what they lead to."""
    return {
        os.path.relpath(path, folder): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_commit_is_copied_with_what_releases_leave_out_and_the_tree_is_untouched(tree: Path, tmp_path: Path) -> None:
    before = seen(tree)
    copy_commit(find_project(tree), "HEAD", tmp_path / "copy")
    texts = dict.fromkeys(("train.py", "lib/left.py", "gone.py"), b"old = 1\n")
    ignores = {name: (tree / name).read_bytes() for name in (".gitignore", ".gitattributes")}
    assert seen(tmp_path / "copy") == {**texts, **ignores, "link": "train.py"}
    assert os.access(tmp_path / "copy" / "train.py", os.X_OK)
    assert seen(tree) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".index")] == []


def test_the_working_tree_is_copied_as_it_is_without_what_git_ignores(tree: Path, tmp_path: Path) -> None:
    before = seen(tree)
    copy_working_tree(find_project(tree / "lib"), tmp_path / "copy")
    found = seen(tmp_path / "copy")
    assert set(found) == {"train.py", "added.py", "link", "lib/left.py", ".gitignore", ".gitattributes"}
    assert (found["train.py"], found["link"]) == (b"new = 1\n", "train.py")
    assert seen(tree) == before


def test_what_is_shared_is_linked_in_both(tree: Path, tmp_path: Path) -> None:
    project = find_project(tree, [tree / "data", tree / "lib"])
    copy_working_tree(project, tmp_path / "one")
    copy_commit(project, "HEAD", tmp_path / "two")
    for copy in ("one", "two"):
        assert (tmp_path / copy / "data" / "a.bin").read_bytes() == b"1"
        assert (tmp_path / copy / "lib").is_symlink()


def test_a_submodule_is_copied_as_the_commit_and_as_the_tree_have_it(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "deep.py").write_text("old = 1\n")
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "one")
    git(tree, "submodule", "add", "-q", str(other), "lib/sub")
    git(tree, "commit", "-qm", "two")
    (tree / "lib" / "sub" / "deep.py").write_text("new = 1\n")
    copy_commit(find_project(tree), "HEAD", tmp_path / "one")
    copy_working_tree(find_project(tree), tmp_path / "two")
    assert (tmp_path / "one" / "lib" / "sub" / "deep.py").read_text() == "old = 1\n"
    assert (tmp_path / "two" / "lib" / "sub" / "deep.py").read_text() == "new = 1\n"


def test_a_copy_that_is_too_large_asks_to_share(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "LIMIT", 100)
    (tree / "lib" / "big.bin").write_bytes(b"0" * 101)
    with pytest.raises(CopyError, match=r"most of them in lib .*: give what programs only read as --shared PATH"):
        copy_working_tree(find_project(tree), tmp_path / "copy")
    copy_working_tree(find_project(tree, [tree / "lib" / "big.bin"]), tmp_path / "copy")
    assert (tmp_path / "copy" / "lib" / "big.bin").is_symlink()


def test_what_is_wrong_is_one_line(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(CopyError, match=r"plain: not in a git repository: .* \(git init, git add\)$"):
        find_project(tmp_path / "plain")
    with pytest.raises(CopyError, match=r"^--shared .*nowhere: not there$"):
        find_project(tree, [tree / "nowhere"])
    with pytest.raises(CopyError, match=r"programs reach what is outside by its own path$"):
        find_project(tree, [tmp_path / "plain"])
    for commit in ("v9", "--help"):
        with pytest.raises(CopyError, match=f"^{commit}: git knows no such commit here$"):
            copy_commit(find_project(tree), commit, tmp_path / "copy")


def test_a_hook_of_git_may_run_it(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    copy_commit(find_project(tree), "HEAD", tmp_path / "copy")
    assert (tmp_path / "copy" / "train.py").exists()


def test_what_a_program_wrote_is_carried_over_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    clean, ran, target = (tmp_path / name for name in ("clean", "ran", "target"))
    copy_working_tree(find_project(tree), clean)
    copy_copy(clean, ran)
    (ran / "ckpt").mkdir()
    (ran / "ckpt" / "1.pt").write_bytes(b"1")
    (ran / "latest").symlink_to("ckpt/1.pt")
    (ran / "added.py").write_text("x = 1\n")
    os.mkfifo(ran / "ckpt" / "pipe")
    target.mkdir()
    (target / "train.py").write_text("after = 1\n")
    carry_over(ran, clean, target)
    written = {"ckpt/1.pt": b"1", "latest": "ckpt/1.pt", "added.py": b"x = 1\n"}
    assert seen(target) == {**written, "train.py": b"after = 1\n"}
    copy_files(ran / "ckpt", tmp_path / "all")
    assert seen(tmp_path / "all") == {"1.pt": b"1"}


def test_changed_lines_are_those_at_which_code_starts(tmp_path: Path) -> None:
    old = "import a\n\ndef f(x):\n    # says\n    y = g(\n        x,\n        1,\n    )\n    return y\n"
    new = old.replace("says", "tells").replace("        1,", "        2,").replace("import a\n", "import b\nimport a\n")
    for name, text in (("before", old), ("after", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text)
        (tmp_path / name / "same.py").write_text("x = 1\n")
        (tmp_path / name / "broken.py").write_text(f"{name} = (\n")
    (tmp_path / "after" / "b.py").write_text("z = 1\n")
    before, after = changed_lines(tmp_path / "before", tmp_path / "after")
    assert before["a.py"][-1] in (5, 7)
    assert after["a.py"][0] in (6, 8)
    assert len(before["a.py"]) == len(after["a.py"]) == 1
    assert after["b.py"] == [1]
    assert set(before) == {"a.py"}
    assert set(after) == {"a.py", "b.py"}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("import a\n", "import b\n", [1]),
        ("import a\nx = 1\n", "import b\nx = 2\n", [2]),
        ("@a\ndef f(\n    x,\n):\n    return x\n", "@a\ndef f(\n    y,\n):\n    return y\n", [5]),
        ("class A(B):\n    pass\n", "class A(C):\n    pass\n", [1]),
    ],
    ids=["only imports", "imports and more", "a function", "only a head"],
)
def test_what_runs_wherever_a_module_is_imported_counts_only_alone(
    old: str, new: str, lines: list[int], tmp_path: Path
) -> None:
    for name, text in (("before", old), ("after", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text)
    assert changed_lines(tmp_path / "before", tmp_path / "after")[1] == {"a.py": lines}


def test_two_versions_differ_in_any_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text("lr: 1\n")
    assert not differing(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "a.yaml").write_text("lr: 2\n")
    assert list(differing(tmp_path / "one", tmp_path / "two")) == ["a.yaml"]
    (tmp_path / "two" / "a.yaml").write_text("lr: 1\n")
    (tmp_path / "two" / "empty.py").write_text("")
    assert differing(tmp_path / "one", tmp_path / "two")["empty.py"][0] is None
