"""Reading a checkpoint, whatever it is."""

from __future__ import annotations

import os
import stat

from fsdp_migrate.checkpoint import dcp_folder, torch_file
from fsdp_migrate.checkpoint.contents import CheckpointError, Contents, Format, tensors
from fsdp_migrate.checkpoint.pickles import Opened


def inspect(path: str) -> Contents:
    """What lies at `path`. Nothing that it names is imported or called, and no numbers of tensors are read.

    Raises:
        CheckpointError: no checkpoint, or a damaged one.
    """
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return _folder(path)
        return _file(path)
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror or error}") from None


def _folder(path: str) -> Contents:
    opened = Opened()
    held = dcp_folder.read(path, opened)
    sizes = [tensor.nbytes for _, tensor in tensors(held.tree)]
    names = frozenset(opened.names)
    return Contents(path, Format.DCP, held.tree, names, sum(sizes), max(sizes, default=0), held.written, held.flat)


def _file(path: str) -> Contents:
    opened = Opened()
    with dcp_folder.open_regular(path) as file:
        held = torch_file.read(file, opened)
    sizes = opened.storages.values()
    names = frozenset(opened.names)
    largest = max(sizes, default=0)
    return Contents(path, Format.FULL, held.tree, names, sum(sizes), largest, mappable=held.mappable)
