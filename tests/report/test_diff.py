from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fsdp_migrate.report.diff import patch_name, unified
from tests.test_process import COMMAND, ENVIRONMENT, LEGACY


def test_an_unchanged_file_has_no_diff() -> None:
    assert unified("a.py", b"x\n", b"x\n") == b""


def test_a_diff_has_the_headers_that_git_and_patch_expect() -> None:
    assert unified("src/a.py", b"x\n", b"y\n") == b"--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert unified("src/a b.py", b"x\n", b"y\n").startswith(b"--- a/src/a b.py\t\n+++ b/src/a b.py\t\n")
    assert unified('a"\n.py', b"x\n", b"y\n").startswith(b'--- "a/a\\042\\012.py"\n+++ "b/a\\042\\012.py"\n')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
        (b"a\nb", b"a\nB"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"a\rb\rc\n\x0c\nd\n", b"a\rb\rC\n\x0c\nD\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", b"# -*- coding: latin-1 -*-\ny = '\xe9'\n"),
        (b"\xef\xbb\xbfx\n", b"\xef\xbb\xbfy\n"),
        (b"x = '\xe2\x80\xa8'\ny\n", b"x = '\xe2\x80\xa8'\nz\n"),
        (b"", b"x\n"),
    ],
)
@pytest.mark.parametrize("tool", [["git", "apply", "-"], ["patch", "-p1", "-s", "--binary"]], ids=["git", "patch"])
def test_applying_the_diff_gives_the_new_bytes(tmp_path: Path, before: bytes, after: bytes, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    target = tmp_path / "my pkg" / "a.py"
    target.parent.mkdir()
    target.write_bytes(before)
    subprocess.run(tool, cwd=tmp_path, input=unified("my pkg/a.py", before, after), check=True)
    assert target.read_bytes() == after


def test_a_patch_names_files_from_the_root_of_their_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other, loose = tmp_path / "root", tmp_path / "other", tmp_path / "loose"
    for folder in (root / "sub" / "deep", root / "module" / "lib", other / "src", loose):
        folder.mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "module" / ".git").write_text("gitdir: ../.git/modules/module\n")
    (other / ".git").mkdir()
    (root / "sub" / "link.py").symlink_to(root / "sub" / "deep" / "b.py")
    monkeypatch.chdir(root / "sub")
    assert patch_name("a.py") == patch_name(str(root / "sub" / "a.py")) == "sub/a.py"
    assert (patch_name("../a.py"), patch_name("link.py")) == ("a.py", "sub/deep/b.py")
    assert patch_name("../module/lib/a.py") == "module/lib/a.py"
    assert patch_name(str(other / "src" / "a.py")) == "src/a.py"
    monkeypatch.chdir(root / "module" / "lib")
    assert patch_name("a.py") == "lib/a.py"
    monkeypatch.chdir(loose)
    assert patch_name("a.py") == patch_name(str(loose / "a.py")) == "a.py"
    assert patch_name(str(tmp_path / "a.py")) == str(tmp_path / "a.py").lstrip("/")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(
    ("name", "place", "path"),
    [
        ("a.py", ".", "."),
        ("a b.py", "sub", "deep"),
        ("a.py", "sub/deep", "{whole}"),
        ("caf\u00e9.py", "sub", "."),
        ('a"b.py', "sub", "{whole}"),
        ("tab\tbed.py", "sub/deep", "."),
    ],
)
def test_git_applies_what_rewrite_prints_wherever_it_runs(tmp_path: Path, name: str, place: str, path: str) -> None:
    here = tmp_path / "root" / place
    target = tmp_path / "root" / "sub" / "deep" / name
    target.parent.mkdir(parents=True)
    target.write_text(LEGACY)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "root", check=True)
    path = path.format(whole=target)
    command = [*COMMAND, "rewrite", "--diff", "--output-file", str(tmp_path / "it.patch"), path]
    assert subprocess.run(command, cwd=here, env=ENVIRONMENT, capture_output=True).returncode == 1
    subprocess.run(["git", "apply", str(tmp_path / "it.patch")], cwd=here, check=True)
    assert "FSDP.optim_state_dict(" in target.read_text()
