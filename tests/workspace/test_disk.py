from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fsdp_migrate.workspace import disk


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 300_000])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    assert disk.contents(str(tmp_path / "a")) == b"x" * size


def test_a_file_that_says_that_it_is_empty_is_read_nevertheless() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux has such files")
    assert b"Pid:" in disk.contents("/proc/self/status")


def test_pipes_sockets_devices_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", "/dev/zero", tmp_path):
            with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
                disk.contents(str(path))


def test_what_a_killed_run_left_is_known_by_its_name(tmp_path: Path) -> None:
    found = disk.leftovers("src", ["a.py", ".fsdp-migrate-1f.tmp", "fsdp-migrate-1f.tmp", ".fsdp-migrate-1f", "b.tmp"])
    assert list(found) == [os.path.join("src", ".fsdp-migrate-1f.tmp")]
