from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fsdp_migrate import replacing
from fsdp_migrate.replacing import ChangedError
from fsdp_migrate.workspace import disk


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["unnamed", "named", "cannot be named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the system offers for writing a file beside another."""
    if request.param == "unnamed" and not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without names")
    if request.param == "named":
        monkeypatch.setattr(replacing, "_UNNAMED", None)
    if request.param == "cannot be named":
        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


def refuse(*_arguments: object, **_options: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_bytes(b"old\r\n")
    return path


# --- writing ---------------------------------------------------------------------------------------------------------


def test_the_new_bytes_are_there_with_the_old_mode_and_nothing_beside_them(way: str, target: Path) -> None:
    target.chmod(0o754)
    replacing.replace(str(target), b"new\n" * 50_000, b"old\r\n")
    assert target.read_bytes() == b"new\n" * 50_000
    assert stat.S_IMODE(target.stat().st_mode) == 0o754
    assert names(target.parent) == ["a.py"]


def test_without_a_name_a_file_that_is_written_is_seen_by_nobody(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without names")
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(names(target.parent)))
    replacing.replace(str(target), b"new\n", b"old\r\n")
    assert seen == [["a.py"]]


def test_extended_attributes_are_kept(way: str, target: Path) -> None:
    try:
        os.setxattr(target, "user.note", b"kept")
    except (AttributeError, OSError):
        pytest.skip("this file system has no extended attributes")
    replacing.replace(str(target), b"new\n", b"old\r\n")
    assert os.getxattr(target, "user.note") == b"kept"


@pytest.fixture
def other(target: Path) -> Path:
    path = target.with_name("b.py")
    path.hardlink_to(target)
    return path


def test_another_hard_link_keeps_the_old_bytes(target: Path, other: Path, way: str) -> None:
    replacing.replace(str(target), b"new\n", b"old\r\n")
    assert (target.read_bytes(), other.read_bytes()) == (b"new\n", b"old\r\n")


def test_a_file_that_changed_or_went_away_stays_so(way: str, target: Path) -> None:
    with pytest.raises(ChangedError):
        replacing.replace(str(target), b"new\n", b"older\n")
    assert target.read_bytes() == b"old\r\n"
    target.unlink()
    with pytest.raises(FileNotFoundError):
        replacing.replace(str(target), b"new\n", b"old\r\n")
    assert names(target.parent) == []


def test_a_disk_that_is_full_in_the_middle_costs_nothing(
    way: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, raw: bytes) -> int:
        if len(raw) < 3000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return 1000

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left on device"):
            replacing.replace(str(target), b"new\n" * 1000, b"old\r\n")
    assert target.read_bytes() == b"old\r\n"
    assert names(target.parent) == ["a.py"]


def test_no_descriptor_stays_open(way: str, target: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux tells")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        replacing.replace(str(target), b"new\n", target.read_bytes())
        with pytest.raises(ChangedError):
            replacing.replace(str(target), b"new\n", b"no")
        disk.contents(str(target))
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_whoever_reads_meanwhile_sees_the_old_or_the_new_bytes(way: str, target: Path) -> None:
    old, new = b"old\n" * 30_000, b"new\n" * 30_000
    target.write_bytes(old)
    seen: set[bytes] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(target.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(20):
        replacing.replace(str(target), new, old)
        replacing.replace(str(target), old, new)
    done.set()
    watcher.join()
    assert seen <= {old, new}


# --- what a killed run left ------------------------------------------------------------------------------------------


def test_what_a_killed_run_left_is_cleared_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    left, locked = tmp_path / ".fsdp-migrate-1.tmp", tmp_path / ".fsdp-migrate-2.tmp"
    left.touch()
    with open(locked, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        replacing.clear([str(left), str(locked), str(tmp_path / "gone")])
    assert names(tmp_path) == [locked.name]


def test_a_file_that_is_being_written_is_locked(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_UNNAMED", None)
    seen: list[str] = []

    def clear(descriptor: int) -> None:
        found = list(disk.leftovers(str(target.parent), os.listdir(target.parent)))
        replacing.clear(found)
        seen.extend(path for path in found if os.path.exists(path))

    monkeypatch.setattr(os, "fsync", clear)
    replacing.replace(str(target), b"new\n", b"old\r\n")
    assert len(seen) == 1
    assert target.read_bytes() == b"new\n"


# --- limits of the system --------------------------------------------------------------------------------------------


def test_a_file_that_may_not_grow_so_large_stays_as_it_was(target: Path) -> None:
    pytest.importorskip("resource")
    program = f"""
import resource
from fsdp_migrate.workspace import filesystem
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    filesystem.write(filesystem.SourceFile({str(target)!r}, "a.py"), b"new" * 1000, {b"old" + bytes([13, 10])!r})
except filesystem.FileError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "cannot be written: File too large\n"
    assert target.read_bytes() == b"old\r\n"
    assert names(target.parent) == ["a.py"]
