"""What a checkpoint holds, without its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

Path = tuple[Any, ...]

BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of a number by dtype; those that are not named here (float8, quantized) take one."""


class CheckpointError(Exception):
    """What cannot be read or converted; the message is one line for the user."""


class Format(Enum):
    """How a checkpoint is stored."""

    FULL = "torch.save file"
    DCP = "DCP folder"


@dataclass(frozen=True)
class Tensor:
    """A tensor: `place` is where its numbers lie, the same for tensors that share them."""

    shape: tuple[int, ...] | None
    dtype: str
    place: tuple[Any, ...]
    sharded: bool = False

    @property
    def nbytes(self) -> int:
        """The bytes of its numbers."""
        count = 1
        for size in self.shape or ():
            count *= size
        return count * BYTES.get(self.dtype, 1)


class Written(NamedTuple):
    """The torch releases that can have written something, and what tells so."""

    first: str
    last: str | None
    because: str


@dataclass(frozen=True)
class Contents:
    """A checkpoint: `tree` is its dict with `Tensor` for each tensor, `names` is what its pickles name.

    `nbytes` are those of all tensors, `largest` those of one. `flat` has the path of each key of a DCP folder.
    torch maps a file that is `mappable`; others it loads whole.
    """

    path: str
    format: Format
    tree: Any
    names: frozenset[str]
    nbytes: int
    largest: int
    written: tuple[Written, ...] = ()
    flat: dict[str, Path] | None = None
    mappable: bool = False

    @property
    def foreign(self) -> list[str]:
        """Names in its pickles that `torch.load` refuses with `weights_only=True`: loading would run what they name."""
        foreign = [name for name in self.names if not is_plain(name)]
        return sorted(foreign, key=lambda name: (name.startswith("torch."), name))


# What the pickles of tensors, of plain values and of DCP's own metadata name. Nothing with a dot more: attributes of a
# function lead to everything.
_PLAIN = re.compile(
    r"""collections\.OrderedDict | _codecs\.encode | builtins\.(set|bytearray) | pathlib\.(Pure)?(Posix|Windows)Path
    | torch\.(Size|device|Tensor|bool|(b?float|q?u?int|complex|bits)\d\w*) | torch\.nn\.parameter\.Parameter
    | torch\.(cuda\.|storage\.)?\w*Storage | torch\._utils\._rebuild_\w+ | torch\._tensor\._rebuild_from_type_v2
    | torch\.serialization\._get_layout
    | torch\.distributed\.checkpoint\.(metadata\._?[A-Z]\w+ | filesystem\._Storage(Info|Prefix))""",
    re.VERBOSE,
)


def is_plain(name: str) -> bool:
    """Whether a global of a pickle belongs to torch's data, so that nothing runs that somebody else wrote."""
    return _PLAIN.fullmatch(name) is not None


def tensors(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """The tensors below `tree` with their paths, each container once."""
    seen: set[int] = set()
    waiting: list[tuple[Path, Any]] = [(path, tree)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, Tensor):
            yield place, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            below = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += reversed([((*place, key), inner) for key, inner in below])
