"""What a folder of `torch.distributed.checkpoint` holds."""

from __future__ import annotations

import io
import os
from collections import Counter
from typing import Any, NamedTuple

from fsdp_migrate.checkpoint import torch_file
from fsdp_migrate.checkpoint.contents import CheckpointError, Path, Tensor, Written
from fsdp_migrate.checkpoint.pickles import LIMIT, Opened, Stand

METADATA = ".metadata"


class StoredFolder(NamedTuple):
    """A folder: its tree, the path of each key, and which torch wrote it."""

    tree: dict[Any, Any]
    flat: dict[str, Path]
    written: tuple[Written, ...]


def read(folder: str, opened: Opened) -> StoredFolder:
    """What lies in `folder`; of its data, only what is no tensor is read.

    Raises:
        CheckpointError: nothing, or not as a whole.
    """
    metadata = _metadata(folder, opened)
    entries = metadata.field("state_dict_metadata")
    stored = metadata.field("storage_data")
    if not isinstance(entries, dict) or not isinstance(stored, dict):
        raise CheckpointError(f"its {METADATA} is not metadata of torch.distributed.checkpoint")
    try:
        blobs = _checked(folder, stored)
        planned = metadata.field("planner_data")
        flat = {key: _path(key, planned) for key in entries}
        values = {
            key: _tensor(key, entry) if "size" in entry.state else _blob(folder, blobs, key, opened)
            for key, entry in entries.items()
        }
        return StoredFolder(_nested(flat, values), flat, tuple(_written(metadata, flat)))
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # what stands where something else has to
        raise CheckpointError(f"its {METADATA} is damaged") from None


def _metadata(folder: str, opened: Opened) -> Stand:
    names = os.listdir(folder)
    if METADATA not in names:
        data = sum(name.endswith(".distcp") for name in names)
        if not names:
            raise CheckpointError("the folder is empty")
        raise CheckpointError(
            f"it has {data} .distcp files but no {METADATA}, which is written last: the save did not finish"
            if data
            else f"it is not a DCP folder: it has no {METADATA}"
        )
    with open_regular(os.path.join(folder, METADATA)) as file:
        raw = file.read(LIMIT + 1)
    if len(raw) > LIMIT:
        raise CheckpointError(f"its {METADATA} is larger than {LIMIT >> 20} MB")
    metadata = opened.read_bytes(raw)
    if not isinstance(metadata, Stand):
        raise CheckpointError(f"its {METADATA} is not metadata of torch.distributed.checkpoint")
    return metadata


def open_regular(path: str) -> io.BufferedReader:
    """A file to read, if it is one: a pipe would never end.

    Raises:
        OSError: it cannot be read.
        CheckpointError: it is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    if not os.path.isfile(path):
        file.close()
        raise CheckpointError("it is not a regular file")
    return file


class _Place(NamedTuple):
    file: str
    offset: int
    length: int
    transformed: bool


def _checked(folder: str, stored: dict[Any, Any]) -> dict[str, _Place]:
    """Where each key is stored (a tensor: one of its pieces), once all files are known to reach that far.

    Raises:
        CheckpointError: a file is missing or short, or lies elsewhere.
    """
    ends: dict[str, int] = {}
    pieces: Counter[str] = Counter()
    places = {}
    for index, info in stored.items():
        name, offset, length = info.field("relative_path"), info.field("offset"), info.field("length")
        if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
            raise CheckpointError(f"its {METADATA} names a file outside of the folder: {name}")
        ends[name] = max(ends.get(name, 0), offset + length)
        pieces[name] += 1
        places[index.field("fqn")] = _Place(name, offset, length, bool(info.field("transform_descriptors")))
    for name, end in sorted(ends.items()):
        try:
            size = os.stat(os.path.join(folder, name)).st_size
        except FileNotFoundError:
            raise CheckpointError(f"{name} is missing: it has {pieces[name]} of {len(stored)} stored pieces") from None
        if size < end:
            raise CheckpointError(f"{name} is truncated: it has {size} of {end} bytes")
    return places


def _path(key: str, planned: Any) -> Path:
    return tuple(planned[key]) if isinstance(planned, dict) and key in planned else (key,)


def _tensor(key: str, entry: Stand) -> Tensor:
    properties = entry.field("properties").state
    dtype = properties["dtype"] if isinstance(properties, dict) else properties[0]
    shape = tuple(int(number) for number in entry.field("size"))
    chunks = entry.field("chunks") or []
    return Tensor(shape, dtype.called.rpartition(".")[2], (key,), sharded=len(chunks) > 1)


def _blob(folder: str, places: dict[str, _Place], key: str, opened: Opened) -> Any:
    """A value that is no tensor: a file of `torch.save` inside of the file."""
    place = places[key]
    if place.transformed:
        opened.names.add("torch.distributed.checkpoint._extension")
        return None
    if place.length > LIMIT:
        raise CheckpointError(f"{key} is a pickle larger than {LIMIT >> 20} MB")
    with open_regular(os.path.join(folder, place.file)) as file:
        file.seek(place.offset)
        inner = Opened()
        try:
            return torch_file.read(io.BytesIO(file.read(place.length)), inner).tree
        finally:
            opened.names |= inner.names


def _nested(flat: dict[str, Path], values: dict[str, Any]) -> dict[Any, Any]:
    """The dict that was saved: numbers in a path are places in a list."""
    root: dict[Any, Any] = {}
    for key, path in flat.items():
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
            if not isinstance(node, dict):
                raise ValueError(key)
        node[path[-1]] = values[key]
    return root


def _written(metadata: Stand, flat: dict[str, Path]) -> list[Written]:
    """Facts of the dataclasses in the metadata, release by release."""
    found = []
    if metadata.field("version") is not None:
        found.append(Written("2.9", None, "its metadata has a version"))
    elif metadata.field("storage_meta") is not None:
        modules = "modules" in metadata.field("storage_meta").state
        first, last = ("2.7", "2.8") if modules else ("2.4", "2.6")
        found.append(
            Written(first, last, f"the fields of its metadata: storage_meta {'with' if modules else 'without'} modules")
        )
    elif any(path[-1] == "param_groups" for path in flat.values()):
        found.append(Written("2.0", "2.3", "the parameter groups are one value"))
    return found
