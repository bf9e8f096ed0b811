from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fsdp_migrate.report.diff import unified


def test_an_unchanged_file_has_no_diff() -> None:
    assert unified("a.py", b"x\n", b"x\n") == b""


def test_a_diff_has_the_headers_that_git_and_patch_expect() -> None:
    assert unified("src/a.py", b"x\n", b"y\n") == b"--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert unified("/abs/a b.py", b"x\n", b"y\n").startswith(b"--- a/abs/a b.py\t\n+++ b/abs/a b.py\t\n")


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
