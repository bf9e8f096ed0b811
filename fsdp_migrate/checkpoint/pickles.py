"""What a pickle holds, found out without importing or calling anything that it names."""

from __future__ import annotations

import io
import pickle
from typing import Any, BinaryIO

from fsdp_migrate.checkpoint.contents import BYTES, CheckpointError, Tensor

LIMIT = 256 << 20
"""Bytes of a pickle that are read: the numbers of tensors lie outside of it."""

_SHARDED = ("ShardedTensor", "DTensor")


class Stand(dict[Any, Any]):
    """Takes the place of any object: it holds what the pickle gives to it, and does nothing."""

    __slots__ = ("given", "state")
    called = ""
    given: tuple[Any, ...]
    state: Any

    def __new__(cls, *given: Any, **_: Any) -> Stand:  # noqa: D102
        made = super().__new__(cls)
        made.given = given
        made.state = {}
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, value: Any) -> None:
        """Be a list."""
        self[len(self)] = value

    def extend(self, values: Any) -> None:
        """Be a list."""
        for value in values:
            self.append(value)

    def field(self, name: str, default: Any = None) -> Any:
        """An attribute of the object, if the pickle gives it by name."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class _Ordered(dict[Any, Any]):
    def __setstate__(self, state: Any) -> None:
        """An OrderedDict of a model has `_metadata`, which holds versions of modules."""


class Opened:
    """The pickles of one checkpoint: what they hold, what they name, and the bytes of each storage."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.storages: dict[str, int] = {}
        self._stands: dict[str, type[Stand]] = {}

    def read(self, file: BinaryIO) -> Any:
        """The object of the next pickle in `file`.

        Raises:
            CheckpointError: it is damaged.
        """
        try:
            return _Reader(file, self).load()
        # Whatever a damaged pickle makes Python's reader do.
        except (Exception, RecursionError, MemoryError):
            raise CheckpointError("its pickle is damaged") from None

    def read_bytes(self, raw: bytes) -> Any:
        """The object of a pickle; as `read`."""
        return self.read(io.BytesIO(raw))

    def find(self, module: str, name: str) -> Any:
        """What stands for a global."""
        full = f"{module}.{name}"
        self.names.add(full)
        if full == "builtins.getattr":
            return self._attribute
        if full in _INERT:
            return _INERT[full]
        if full not in self._stands:
            self._stands[full] = type(name.rpartition(".")[2], (Stand,), {"__slots__": (), "called": full})
        return self._stands[full]

    def _attribute(self, owner: Any, name: str) -> Any:
        """What stands for a class inside of a class."""
        return self.find(owner.called, name)

    def storage(self, given: Any) -> tuple[str, str]:
        """The key and dtype of a storage that a pickle refers to."""
        _, kind, key, _, count, *_ = given
        dtype = _dtype_of_storage(kind.called.rpartition(".")[2])
        self.storages[str(key)] = max(self.storages.get(str(key), 0), int(count) * BYTES.get(dtype, 1))
        return str(key), dtype


class _Memo(dict[int, Any]):
    """The objects by their number, which counts up: a list takes a tenth of the memory that a dict does."""

    __slots__ = ("_counted",)

    def __init__(self) -> None:
        self._counted: list[Any] = []

    def __len__(self) -> int:
        return len(self._counted) + super().__len__()

    def __setitem__(self, number: int, value: Any) -> None:
        if number == len(self._counted):
            self._counted.append(value)
        else:
            super().__setitem__(number, value)

    def __getitem__(self, number: int) -> Any:
        found = super().get(number, self)
        return self._counted[number] if found is self else found


# Python's own reader in Python: the one in C makes room for whatever number a damaged or hostile pickle asks for.
class _Reader(pickle._Unpickler):
    def __init__(self, file: BinaryIO, opened: Opened) -> None:
        super().__init__(file, encoding="latin-1")
        self.memo = _Memo()
        self._opened = opened

    def find_class(self, module: str, name: str) -> Any:
        return self._opened.find("builtins" if module == "__builtin__" else module, name)

    def persistent_load(self, given: Any) -> Any:
        return self._opened.storage(given)

    def get_extension(self, code: int) -> None:
        raise pickle.UnpicklingError(f"extension {code}")


_NAMED = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}


def _dtype_of_storage(name: str) -> str:
    return _NAMED.get(name.removesuffix("Storage"), "uint8")


def _tensor(storage: Any, offset: Any, size: Any, *_: Any) -> Tensor:
    key, dtype = storage
    return Tensor(_shape(size), dtype, (key, offset))


def _tensor_of_dtype(storage: Any, offset: Any, size: Any, _s: Any, _r: Any, _h: Any, dtype: Any, *_: Any) -> Tensor:
    return Tensor(_shape(size), dtype.called.rpartition(".")[2], (storage[0], offset))


def _shape(size: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in size)


def _first(given: Any, *_: Any) -> Any:
    return given


def _subclass(rebuild: Any, kind: Any, given: Any, state: Any) -> Any:
    """A tensor of a subclass; those that are in several places hold their part somewhere in `given` and `state`."""
    if kind.called.rpartition(".")[2] in _SHARDED:
        return _sharded(kind, given)
    return rebuild(*given)


def _sharded(kind: Any, given: Any) -> Tensor:
    sizes = [part for part in given if type(part) is tuple and all(isinstance(size, int) for size in part)]
    dtypes = [getattr(part, "called", "") for part in given]
    dtype = next((name.rpartition(".")[2] for name in dtypes if name.rpartition(".")[2] in BYTES), "")
    return Tensor(sizes[0] if sizes else None, dtype, (object(),), sharded=True)


_INERT: dict[str, Any] = {
    "collections.OrderedDict": _Ordered,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _subclass,
}
