"""Pickles are looked into, and nothing that they name is imported or called."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.checkpoint import CheckpointError
from fsdp_migrate.checkpoint.contents import is_plain
from fsdp_migrate.checkpoint.pickles import Opened, Stand


class Runs:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def read(raw: bytes) -> tuple[Any, set[str]]:
    opened = Opened()
    return opened.read_bytes(raw), opened.names


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_pickle_would_run_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    found, names = read(pickle.dumps({"a": Runs(os.mkdir, str(mark)), "b": Runs(eval, "1 / 0")}, protocol))
    assert not mark.exists()
    assert {name.rpartition(".")[2] for name in names} == {"mkdir", "eval"}
    assert isinstance(found["a"], Stand)
    assert found["a"].given == (str(mark),)


def test_plain_values_come_as_they_are() -> None:
    value = {"epoch": 3, "betas": (0.9, 0.999), "names": ["a", None, True], "big": 1 << 80}
    assert read(pickle.dumps(value, 2))[0] == value


def test_an_ordered_dict_with_attributes_is_a_dict() -> None:
    value = collections.OrderedDict(a=1)
    value._metadata = {"": 1}  # type: ignore[attr-defined]
    assert read(pickle.dumps(value, 2)) == ({"a": 1}, {"collections.OrderedDict"})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\x80\x02.",
        b"\x80\x02}q\x00(X\x05\x00\x00\x00mo",
        b"\x80\x02r\xff\xff\xff\x7f.",  # a memo of 2 billion
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a bytearray of exabytes
        b"\x80\x02Q.",  # a storage of nothing
        b"\x80\x02K\x01Q.",
        b"(" * 100_000,
        b"\x82\x01.",  # an extension
    ],
)
def test_a_damaged_pickle_is_one_error(raw: bytes) -> None:
    with pytest.raises(CheckpointError, match="its pickle is damaged"):
        read(raw)


def test_a_pickle_that_refers_to_itself_ends() -> None:
    value: list[Any] = []
    value.append(value)
    found, _ = read(pickle.dumps(value, 2))
    assert found[0] is found


@pytest.mark.parametrize(
    "name",
    [
        "torch._utils._rebuild_tensor_v2",
        "torch.FloatStorage",
        "torch.bfloat16",
        "torch.float8_e4m3fn",
        "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
        "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    ],
)
def test_names_of_torchs_data_are_plain(name: str) -> None:
    assert is_plain(name)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.getattr",
        "torch.load",
        "torch.compile",
        "torch._utils._rebuild_tensor.__builtins__.__getitem__",
        "torch.distributed.checkpoint.metadata.Metadata.__init__.__globals__.get",
        "torch.distributed.checkpoint.metadata.os",
        "torch.distributed._shard.sharded_tensor.api.ShardedTensor",
        "mine.torch.Size",
    ],
)
def test_names_that_can_run_something_are_not(name: str) -> None:
    assert not is_plain(name)


def test_pickle_names_are_read_as_torch_resolves_them() -> None:
    function = b"\x80\x04\x8c\x0ctorch._utils\x8c\x20_rebuild_tensor.__builtins__.get\x93."
    (name,) = read(function)[1]
    assert name == "torch._utils._rebuild_tensor.__builtins__.get"
    assert not is_plain(name)


def test_reading_needs_no_process() -> None:
    # The class in the pickle is one whose construction starts a process.
    assert isinstance(read(pickle.dumps(Runs(subprocess.Popen, ["false"]), 2))[0], Stand)
