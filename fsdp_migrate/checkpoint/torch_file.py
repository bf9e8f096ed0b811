"""What a file of `torch.save` holds."""

from __future__ import annotations

import os
import zipfile
from typing import Any, BinaryIO, NamedTuple

from fsdp_migrate.checkpoint.contents import CheckpointError
from fsdp_migrate.checkpoint.pickles import LIMIT, Opened

_ZIP = b"PK\x03\x04"
# The number that a file of `torch.save` before 1.6, or without zip, begins with, as a pickle.
_OLD = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


class StoredFile(NamedTuple):
    """The object in a file, and whether torch can map it."""

    tree: Any
    mappable: bool


def read(file: BinaryIO, opened: Opened) -> StoredFile:
    """What `torch.save` wrote into `file`; numbers of tensors are not read.

    Raises:
        CheckpointError: nothing, or not as a whole.
    """
    start = file.read(len(_OLD))
    file.seek(0)
    if start.startswith(_ZIP):
        return StoredFile(_archive(file, opened), True)
    if start == _OLD:
        return StoredFile(_stream(file, opened), False)
    raise CheckpointError("it is not a file of torch.save")


def _archive(file: BinaryIO, opened: Opened) -> Any:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise CheckpointError("it is truncated or damaged: the directory at its end is missing") from None
    if "data.pkl" not in infos:
        kind = "a TorchScript archive" if "constants.pkl" in infos else "a zip archive of something else"
        raise CheckpointError(f"it is not a file of torch.save, but {kind}")
    tree = opened.read_bytes(_record(file, infos["data.pkl"]))
    for key, size in opened.storages.items():
        record = infos.get(f"data/{key}")
        if record is None or record.file_size < size:
            raise CheckpointError("it is damaged: data of its tensors is missing")
    return tree


def _record(file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
    """The bytes of a record as torch stores it: uncompressed, with a checksum that may be left out."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError("it is not a file of torch.save, but a compressed archive")
    if info.file_size > LIMIT:
        raise CheckpointError(f"its pickle has {info.file_size >> 20} MB; the limit is {LIMIT >> 20} MB")
    try:
        file.seek(info.header_offset)
    except (OSError, ValueError):  # no place in any file
        raise CheckpointError("it is damaged") from None
    header = file.read(30)
    if len(header) < 30 or not header.startswith(_ZIP):
        raise CheckpointError("it is damaged")
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), os.SEEK_CUR)
    return file.read(info.file_size)


def _stream(file: BinaryIO, opened: Opened) -> Any:
    """The fourth of the pickles that stand one after the other; the numbers follow, each storage after its length."""
    for _ in range(3):
        opened.read(file)
    tree = opened.read(file)
    opened.read(file)
    needed = file.tell() + sum(8 + size for size in opened.storages.values())
    if os.fstat(file.fileno()).st_size < needed:
        raise CheckpointError("it is truncated")
    return tree
