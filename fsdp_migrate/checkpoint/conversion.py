"""Turning a checkpoint into another one, with torch."""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from fsdp_migrate.checkpoint import room
from fsdp_migrate.checkpoint.contents import CheckpointError, Contents, Format, tensors
from fsdp_migrate.checkpoint.edits import Edit, ParameterNames, apply, edits
from fsdp_migrate.checkpoint.layout import Layout, parts
from fsdp_migrate.checkpoint.opening import inspect

_OVERHEAD = 64 << 20
"""Bytes beside the tensors: torch's buffers, and what is no tensor."""
_BATCH = 256 << 20
"""Bytes of tensors that are read back at once."""


class Wish(NamedTuple):
    """What is asked for: `trust` loads pickles that may run code."""

    target: str
    format: Format | None = None
    names: ParameterNames | None = None
    strip: bool = True
    trust: bool = False


def convert(source: str, wish: Wish, tell: Callable[[str], None]) -> Contents:
    """Write what `source` holds to a new place; `tell` gets what is done, a line each.

    Raises:
        CheckpointError: it cannot be done. There is nothing new then.
    """
    contents = inspect(source)
    _refuse(contents, wish)
    folder = os.path.dirname(os.path.abspath(wish.target))
    try:
        with (
            tempfile.TemporaryDirectory(
                prefix=".fsdp-migrate-", suffix=".tmp", dir=folder, ignore_cleanup_errors=True
            ) as work,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            _write(contents, wish, folder, work, tell)
    except CheckpointError:
        raise
    except PermissionError as error:
        verb = "read" if os.path.exists(error.filename or "") else "written"
        raise CheckpointError(f"{error.filename or folder} cannot be {verb}: {error.strerror}") from None
    except (Exception, CheckpointException) as error:  # whatever torch raises for what it cannot read or write
        raise CheckpointError(f"it cannot be converted: {_first_line(error)}") from error
    return inspect(wish.target)


def _write(contents: Contents, wish: Wish, folder: str, work: str, tell: Callable[[str], None]) -> None:
    """Make the new checkpoint in `work`, and give it its name."""
    stored = wish.format or (Format.FULL if contents.format is Format.DCP else Format.DCP)
    wanted = edits(contents, stored, wish.names, strip=wish.strip)
    tell(room.claim(*_needs(contents, stored, wanted), folder))
    made = _made(contents, stored, wanted, work, wish)
    if os.path.lexists(wish.target):
        raise CheckpointError(f"{wish.target} was created by another program meanwhile")
    os.rename(made, wish.target)
    for edit in wanted:
        tell(edit.told)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _refuse(contents: Contents, wish: Wish) -> None:
    if os.path.lexists(wish.target):
        raise CheckpointError(f"{wish.target} exists already, and is not overwritten")
    if not os.path.isdir(os.path.dirname(os.path.abspath(wish.target))):
        raise CheckpointError(f"{wish.target}: its folder does not exist")
    inside = os.path.realpath(wish.target).startswith(os.path.realpath(contents.path) + os.sep)
    if inside:
        raise CheckpointError(f"{wish.target} is inside the checkpoint that is converted")
    if not isinstance(contents.tree, dict):
        raise CheckpointError("it does not contain a dict")
    for part in parts(contents):
        if part.layout is Layout.LOCAL or (part.layout is Layout.SHARDED and contents.format is Format.FULL):
            raise CheckpointError(
                f"{part.name} is {part.layout.value}, the part of one rank: run the program that wrote it again, "
                "and save under FULL_STATE_DICT"
            )
    if contents.foreign and not wish.trust:
        more = f" and {len(contents.foreign) - 1} more" if len(contents.foreign) > 1 else ""
        raise CheckpointError(
            f"its pickles name {contents.foreign[0]}{more}, and loading runs it: pass --trust if you trust the author"
        )


def _needs(contents: Contents, stored: Format, wanted: list[Edit]) -> tuple[int, int]:
    """Bytes of memory and of disk.

    A folder is loaded whole, tensor by tensor, and what changes or stays a folder goes by way of a file. A file is
    mapped if it can be; torch writes a tensor of it into a folder by way of two copies. Either is read back in batches.
    """
    folder = contents.format is Format.DCP
    copied = contents.largest if folder else 2 * contents.largest
    memory = copied if contents.mappable else contents.nbytes + copied
    copies = 2 if folder and (wanted or stored is Format.DCP) else 1
    return max(memory, min(contents.nbytes, _BATCH)) + _OVERHEAD, copies * contents.nbytes + _OVERHEAD


def _made(contents: Contents, stored: Format, wanted: list[Edit], work: str, wish: Wish) -> str:
    """The new checkpoint in `work`, read back and compared."""
    source = contents.path
    if contents.format is Format.DCP:
        source = os.path.join(work, "full")
        dcp_to_torch_save(contents.path, source)
        loaded = _loaded(source, wish.trust, mappable=True)
        _compare_folder(contents, loaded)
        if not wanted and stored is Format.FULL:
            return source
    else:
        loaded = _loaded(source, wish.trust, mappable=contents.mappable)
    changed = apply(loaded, wanted)
    made = os.path.join(work, "made")
    if stored is Format.DCP:
        save(changed, storage_writer=FileSystemWriter(made))
        _compare_folder(inspect(made), changed)
    else:
        torch.save(changed, made)
        _compare(changed, _loaded(made, wish.trust, mappable=True), "")
    return made


def _loaded(path: str, trust: bool, *, mappable: bool) -> Any:
    """What a file holds, mapped where torch can map it."""
    try:
        return torch.load(path, map_location="cpu", mmap=mappable, weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"weights_only=True refuses it: {_first_line(error)}") from None


def _compare_folder(folder: Contents, expected: Any) -> None:
    """Read a DCP folder back, piece by piece.

    Raises:
        CheckpointError: it does not hold what is expected.
    """
    assert folder.flat is not None
    values = {key: _at(expected, path) for key, path in folder.flat.items()}
    if sum(1 for _ in tensors(folder.tree)) != _tensors_in(expected):
        raise CheckpointError("the tensors read back differ from those written")
    for batch in _batches(values):
        found = {
            key: torch.empty_like(value) if isinstance(value, torch.Tensor) else None for key, value in batch.items()
        }
        load(
            found,
            storage_reader=FileSystemReader(folder.path),
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )
        _compare(batch, found, "")


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        # DCP has the numbers of parameters as text.
        tree = tree[step] if isinstance(tree, (list, tuple)) or step in tree else tree[int(step)]
    return tree


def _tensors_in(tree: Any) -> int:
    if isinstance(tree, torch.Tensor):
        return 1
    below = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return sum(map(_tensors_in, below))


def _batches(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    batch: dict[str, Any] = {}
    room_left = _BATCH
    for key, value in values.items():
        nbytes = value.nbytes if isinstance(value, torch.Tensor) else 0
        if batch and nbytes > room_left:
            yield batch
            batch, room_left = {}, _BATCH
        batch[key] = value
        room_left -= nbytes
    if batch:
        yield batch


def _compare(expected: Any, found: Any, place: str) -> None:
    """Whether two values are the same, bit by bit.

    Raises:
        CheckpointError: they are not; the first place where is told.
    """
    same = type(expected) is type(found)
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        same = _same_tensor(expected, found)
    elif same and isinstance(expected, dict):
        same = list(expected) == list(found)
        for key in expected if same else ():
            _compare(expected[key], found[key], f"{place}.{key}" if place else str(key))
    elif same and isinstance(expected, (list, tuple)):
        same = len(expected) == len(found)
        for number, (one, other) in enumerate(zip(expected, found)):
            _compare(one, other, f"{place}.{number}")
    elif same:
        same = bool(expected == found) or pickle.dumps(expected) == pickle.dumps(found)
    if not same:
        raise CheckpointError(f"the value read back differs at {place or 'its keys'}")


def _same_tensor(expected: torch.Tensor, found: torch.Tensor) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.layout is not torch.strided or expected.is_quantized:
        return bool(torch.equal(expected, found))
    one, other = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (expected, found))
    return bool(torch.equal(one, other))
