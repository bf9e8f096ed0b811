"""Files that cannot be read, written or relied upon: each is named, and none keeps the others from being done."""

from __future__ import annotations

import codecs
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fsdp_migrate import replacing, runner
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.settings import Layer
from tests.torture.programs import LEGACY, call, outcome, run

SETTINGS = Configuration(Layer(torch=TorchRange.parse(">=2.1")))

asked_to_refuse = pytest.mark.skipif(
    sys.platform != "linux" and (not hasattr(os, "geteuid") or os.geteuid() == 0), reason="root is refused nothing"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file to rewrite."""
    (tmp_path / "good.py").write_text(LEGACY)
    return tmp_path


def refused(root: Path) -> tuple[int, list[str]]:
    """How a rewrite ends that does the good file and is refused another one."""
    ended = run(root, "rewrite", ".", powerless=True)
    assert "full_optim_state_dict" not in (root / "good.py").read_text()
    return ended.returncode, ended.stderr.splitlines()


@asked_to_refuse
def test_a_file_that_may_not_be_read(root: Path) -> None:
    (root / "a.py").write_text(LEGACY)
    (root / "a.py").chmod(0o000)
    assert refused(root) == (3, ["error: a.py: cannot be read: Permission denied"])


@asked_to_refuse
def test_a_folder_that_may_not_be_read(root: Path) -> None:
    (root / "a").mkdir(mode=0o000)
    assert refused(root) == (3, ["error: a: cannot be read: Permission denied"])


@asked_to_refuse
def test_a_file_that_may_not_be_written(root: Path) -> None:
    (root / "a.py").write_text(LEGACY)
    (root / "a.py").chmod(0o444)
    assert refused(root) == (3, ["error: a.py: not rewritten: the file is read-only"])
    assert (root / "a.py").read_text() == LEGACY


@asked_to_refuse
def test_a_folder_in_which_no_file_can_be_made(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "a.py").write_text(LEGACY)
    (root / "a").chmod(0o555)
    message = "cannot be written: no file can be created in its folder: Permission denied"
    assert refused(root) == (3, [f"error: a/a.py: {message}"])
    assert os.listdir(root / "a") == ["a.py"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_rewritten_where_that_is_permitted(root: Path) -> None:
    (root / "a.py").write_text(LEGACY)
    (root / "a.py").chmod(0o666)
    os.chown(root / "a.py", 65534, 65534)
    assert refused(root) == (0, [])
    assert "full_optim_state_dict" not in (root / "a.py").read_text()


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_link_that_leads_out_of_the_folder_is_linted_and_not_rewritten(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(LEGACY)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link.py").symlink_to("../outside.py")
    linted = call(tmp_path, "lint", "src")
    assert (linted.exit_code, linted.stdout.splitlines()[0].partition(" ")[0]) == (1, "src/link.py:5:12:")
    assert outcome(tmp_path, "rewrite", "src") == (
        3,
        [f"error: src/link.py: not rewritten: it is a link to {outside}; name that file to have it rewritten"],
    )
    assert outside.read_text() == LEGACY
    assert outcome(tmp_path, "rewrite", "src/link.py") == (0, [])
    assert outside.read_text() != LEGACY
    assert (tmp_path / "src" / "link.py").is_symlink()


def test_a_link_that_is_put_in_the_place_of_a_file_does_not_lead_writing_astray(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(LEGACY)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(LEGACY)
    (file,) = filesystem.discover([str(tmp_path / "src")]).files
    (tmp_path / "src" / "a.py").unlink()
    (tmp_path / "src" / "a.py").symlink_to("../outside.py")
    with pytest.raises(filesystem.FileError, match=r"^not rewritten: it is a link to "):
        filesystem.write(file, b"new\n", LEGACY.encode())
    assert outside.read_text() == LEGACY


def test_of_links_among_the_files_of_a_folder_each_file_is_done_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text(LEGACY)
    (tmp_path / "b.py").symlink_to("sub/a.py")
    (tmp_path / "c").symlink_to("sub", target_is_directory=True)
    ended = call(tmp_path, "rewrite", ".")
    assert ended.exit_code == 0
    assert "in 1 of 1 file" in ended.stdout
    assert (tmp_path / "b.py").is_symlink()


def test_hard_links_are_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(LEGACY)
    for name in ("src/b.py", "outside.py"):
        (tmp_path / name).hardlink_to(tmp_path / "src" / "a.py")
    assert outcome(tmp_path, "rewrite", "src") == (0, [])
    assert (tmp_path / "src" / "a.py").read_text() == (tmp_path / "src" / "b.py").read_text() != LEGACY
    assert (tmp_path / "outside.py").read_text() == LEGACY


def test_links_in_a_loop_and_links_to_nothing_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to("b.py")
    (tmp_path / "b.py").symlink_to("a.py")
    (tmp_path / "c.py").symlink_to("nowhere.py")
    (tmp_path / "d").symlink_to(".", target_is_directory=True)
    (tmp_path / "good.py").write_text(LEGACY)
    assert outcome(tmp_path, "rewrite", ".") == (0, [])
    ended = call(tmp_path, "lint", "a.py")
    assert (ended.exit_code, "does not exist" in ended.stderr) == (2, True)


# --- things that are no files ----------------------------------------------------------------------------------------


def test_pipes_sockets_and_devices_are_passed_over_in_folders_and_named_when_they_were_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "good.py").write_text("x = 1\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.py"))
        assert outcome(tmp_path, "rewrite", ".") == (0, [])
        assert outcome(tmp_path, "lint", "pipe.py", "socket.py", "zero.py") == (
            3,
            [f"error: {name}.py: cannot be read: not a regular file" for name in ("pipe", "socket", "zero")],
        )


@pytest.mark.parametrize("name", [".gitignore", "pyproject.toml", "requirements.txt", "setup.py", "setup.cfg"])
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_no_file_beside_the_code_is_waited_for(tmp_path: Path, name: str, what: str) -> None:
    if what == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    (tmp_path / "a.py").write_text(LEGACY)
    ended = run(tmp_path, "lint", ".")
    assert "a.py:5:12: FSDP101" in ended.stdout
    assert f"{name}: cannot be read: not a regular file" in ended.stderr


# --- contents --------------------------------------------------------------------------------------------------------

CONTENTS: list[tuple[bytes, int, str]] = [
    (b"", 0, ""),
    (b"\n", 0, ""),
    (b"\xef\xbb\xbf", 0, ""),
    (b"\x00" * 100, 0, ""),
    (LEGACY.encode() + b"\x00", 3, "a.py:6:1: FSDP001 the file does not parse: a null byte "),
    (LEGACY.encode() + b"\xc3\xa9 = '\x00'\r\n", 3, "a.py:6:6: FSDP001 the file does not parse: a null byte "),
    (LEGACY.encode().replace(b"\n", b"\r"), 1, "a.py:5:12: FSDP101 "),
    (LEGACY.encode("utf-16"), 3, "error: a.py: cannot be decoded: it is UTF-16, which Python does not read"),
    (codecs.BOM_UTF16_BE + LEGACY.encode("utf-16-be"), 3, "error: a.py: cannot be decoded: it is UTF-16"),
    ("x = 1\n".encode("utf-16"), 0, ""),  # as any text without a word of a rule
    (LEGACY.encode() + b"# \xff\n", 3, "error: a.py: not valid utf-8: "),
    (b"# coding: no-such\n" + LEGACY.encode(), 3, "error: a.py: cannot be decoded: unknown encoding: no-such"),
    (LEGACY.encode() + b"x = " + b"(" * 5000 + b")" * 5000, 3, "a.py:6:"),
    (LEGACY.encode() + b"x = '" + b"y" * 1_000_000 + b"'\n", 1, "a.py:5:12: FSDP101 "),
]


@pytest.mark.parametrize(("raw", "code", "said"), CONTENTS, ids=range(len(CONTENTS)))
def test_whatever_is_in_a_file_it_is_linted_or_the_reason_is_told_in_a_line(
    tmp_path: Path, raw: bytes, code: int, said: str
) -> None:
    (tmp_path / "a.py").write_bytes(raw)
    (tmp_path / "good.py").write_text(LEGACY)
    ended = call(tmp_path, "lint", "-q", ".")
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if "good.py" not in line]
    assert "good.py:5:12: FSDP101" in ended.stdout
    assert ended.exit_code == max(code, 1)
    assert [line[: len(said)] for line in lines] == [said] * bool(said)
    assert call(tmp_path, "rewrite", "-q", ".").exit_code == (3 if code == 3 else 0)
    assert code == 1 or (tmp_path / "a.py").read_bytes() == raw


DEEP = [
    b"x = " + b"-" * 100_000 + b"1\n",
    b"x = a" + b".b" * 100_000 + b"\n",
    b"x = " + b"1 + " * 100_000 + b"1\n",
    b"x = " + b"f(" * 150 + b")" * 150 + b"\n",
    b"if x: pass\n" + b"elif y: pass\n" * 20_000,
    b"".join(b" " * level + b"if x:\n" for level in range(500)) + b" " * 500 + b"pass\n",
    b"FSDP.full_optim_state_dict(model, " + b"a + " * 900 + b"a)\n",
    b"FSDP.full_optim_state_dict(" * 40 + b"model" + b")" * 40 + b"\n",
]


@pytest.mark.parametrize("deep", DEEP, ids=range(len(DEEP)))
def test_however_deep_a_file_is_nested_it_is_done_or_named(tmp_path: Path, deep: bytes) -> None:
    raw = LEGACY.encode() + deep
    (tmp_path / "a.py").write_bytes(raw)
    result = call(tmp_path, "lint", "-q", ".")
    if result.exit_code == 3:  # what is too deep for one Python is not for another
        (line,) = (result.stdout + result.stderr).splitlines()
        assert "a.py:" in line
        assert "nested" in line or "indentation" in line
    else:
        assert "a.py:5:12: FSDP101" in result.stdout
    code = call(tmp_path, "rewrite", "-q", ".").exit_code
    assert (code == 3) == (result.exit_code == 3) == ((tmp_path / "a.py").read_bytes() == raw)


# Each is a program from that Python on, and a syntax error before.
SYNTAX = {
    (3, 11): "try:\n    pass\nexcept* ValueError:\n    pass\n",
    (3, 12): "type Pair[T] = tuple[T, T]\nx = f'{'nested'}'\n",
    (3, 13): "class Box[T = int]:\n    pass\n",
    (3, 14): "x = t'{y}'\ntry:\n    pass\nexcept ValueError, TypeError:\n    pass\n",
}


@pytest.mark.parametrize("version", SYNTAX)
def test_syntax_newer_than_the_running_python_is_one_clear_line(tmp_path: Path, version: tuple[int, int]) -> None:
    (tmp_path / "a.py").write_text(LEGACY + SYNTAX[version])
    lines = call(tmp_path, "lint", "-q", ".").stdout.splitlines()
    if sys.version_info >= version:
        assert [line.partition(" [")[0].partition(" ")[0] for line in lines] == ["a.py:5:12:"]
        assert call(tmp_path, "rewrite", "-q", ".").exit_code == 0
    else:
        (line,) = lines
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert "FSDP001 the file does not parse: " in line
        assert f"run with the Python version that the file needs (this is {running})" in line


def test_fifty_megabytes_are_read_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\n" * (50_000_000 // 6))
    begun = time.monotonic()
    assert outcome(tmp_path, "lint", ".") == (0, [])
    assert time.monotonic() - begun < 30


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"caf\xe9.py", "caf\ufffd.py"),
        (b"a\nb.py", "a\ufffdb.py"),
        (b"\x1b[31mred.py", "\ufffd[31mred.py"),
        (b"\x1b]0;title\x07.py", "\ufffd]0;title\ufffd.py"),
        ("\u202eyp.a.py".encode(), "\ufffdyp.a.py"),
        ("\u2028.py".encode(), "\ufffd.py"),
        (b"-x.py", "-x.py"),
        (b" .py", " .py"),
        (b"[bold]a.py", "[bold]a.py"),
        ("\U0001f600.py".encode(), "\U0001f600.py"),
    ],
)
def test_files_of_any_name_are_done_and_named_on_one_line(tmp_path: Path, name: bytes, shown: str) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "w") as stream:
        stream.write(LEGACY)
    ended = call(tmp_path, "lint", ".")
    assert (ended.exit_code, ended.stdout.splitlines()[0].partition(":")[0], ended.stderr) == (1, shown, "")
    assert outcome(tmp_path, "rewrite", ".") == (0, [])
    with open(path) as stream:
        assert stream.read() != LEGACY


def test_folders_nested_beyond_what_a_path_can_be_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(LEGACY)
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=here)
        here, above = os.open("d" * 100, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    code, said = outcome(tmp_path, "rewrite", ".")
    shutil.rmtree(tmp_path / ("d" * 100))  # or nothing could search the folder of all tests any more
    assert code == 3
    assert [line.rpartition(": ")[2] for line in said] == ["File name too long"]
    assert (tmp_path / "good.py").read_text() != LEGACY


# --- while it runs ---------------------------------------------------------------------------------------------------


def meanwhile(path: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said if `change` happens to a file between reading and writing it."""
    replace = replacing.replace

    def change_and_replace(target: str, new: bytes, old: bytes) -> None:
        change(path)
        replace(target, new, old)

    monkeypatch.setattr(replacing, "replace", change_and_replace)
    plan = runner.rewrite(filesystem.discover([str(path)]), SETTINGS, write=True)
    return [failure.message for failure in plan.failures]


def test_a_file_that_changes_meanwhile_keeps_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text(LEGACY)
    said = meanwhile(path, lambda path: path.write_text("x = 1\n"), monkeypatch)
    assert said == ["not rewritten: it changed while fsdp-migrate was running; run again"]
    assert path.read_text() == "x = 1\n"


def test_a_file_that_goes_away_meanwhile_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text(LEGACY)
    assert meanwhile(path, Path.unlink, monkeypatch) == ["cannot be written: No such file or directory"]
    assert list(tmp_path.iterdir()) == []


def test_a_tree_that_is_torn_down_meanwhile_gives_failures_and_no_fault(tmp_path: Path) -> None:
    paths = [tmp_path / f"d{number}" / "a.py" for number in range(150)]
    for path in paths:
        path.parent.mkdir()
        path.write_text(LEGACY)

    def tear_down() -> None:
        for path in reversed(paths):
            while path.parent.exists():  # what is written into it meanwhile goes as well
                shutil.rmtree(path.parent, ignore_errors=True)

    discovery = filesystem.discover([str(tmp_path)])
    vandal = threading.Thread(target=tear_down)
    vandal.start()
    result = runner.rewrite(discovery, SETTINGS, write=True)
    vandal.join()
    assert len(result.changed) + len(result.failures) == len(paths)
    assert {failure.message.partition(":")[0] for failure in result.failures} <= {"cannot be read", "cannot be written"}
    assert list(tmp_path.iterdir()) == []
