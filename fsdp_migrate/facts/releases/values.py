"""The values in version tests, with their behaviour at run time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import total_ordering
from typing import Any

from packaging.version import InvalidVersion, Version

from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple


class Unknown(Exception):
    """The value does not follow from the torch version alone."""


class TorchVersion(str):
    """`torch.__version__`, a string that compares as a version (torch/torch_version.py, all releases since 1.10).

    Only `!=` compares as strings. Slices, `split` and `str()` give plain strings.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _compare(self, other: object, method: str) -> bool:
        try:
            return bool(getattr(Version(self), method)(_as_version(other)))
        except InvalidVersion:
            if not isinstance(other, str):
                raise Unknown from None
            return bool(getattr(str, method)(self, other))

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "__lt__")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "__le__")

    def __eq__(self, other: object) -> bool:
        return self._compare(other, "__eq__")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "__ge__")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "__gt__")

    def __ne__(self, other: object) -> bool:
        return str.__ne__(self, other) if isinstance(other, str) else True


def _as_version(other: object) -> Version:
    if isinstance(other, Version):
        return other
    if isinstance(other, str):
        return Version(other)
    if isinstance(other, Iterable):
        return Version(".".join(str(part) for part in other))
    raise Unknown


@total_ordering
class LooseVersion:
    """`distutils.version.LooseVersion` and the package `looseversion`: a list of numbers and words."""

    _PARTS = pattern(r"(\d+|[a-z]+|\.)", re.IGNORECASE)

    def __init__(self, text: str) -> None:
        self.vstring = text
        pieces = [piece for piece in self._PARTS.split(text) if piece and piece != "."]
        self.version: list[int | str] = [int(piece) if piece.isdigit() else piece for piece in pieces]

    def _other(self, other: object) -> list[Any]:
        if isinstance(other, str):
            other = type(self)(other)
        if not isinstance(other, LooseVersion):
            raise Unknown
        return other.version

    def __eq__(self, other: object) -> bool:
        return self.version == self._other(other)

    def __lt__(self, other: object) -> bool:
        return self.version < self._other(other)

    __hash__ = None  # type: ignore[assignment]


class StrictVersion(LooseVersion):
    """`distutils.version.StrictVersion` for final releases: two or three numbers."""

    def __init__(self, text: str) -> None:
        if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
            raise Unknown
        super().__init__(text)
        self.version = [*self.version, 0][:3]


class Present:
    """Something of torch that exists: it is true, and not None."""

    def __eq__(self, other: object) -> bool:
        raise Unknown

    __hash__ = None  # type: ignore[assignment]


class Distribution(NamedTuple):
    """torch as `pkg_resources.get_distribution` and `importlib.metadata.distribution` describe it."""

    version: str

    @property
    def parsed_version(self) -> Version:
        """The version as pkg_resources parses it."""
        return Version(self.version)


class Signature(NamedTuple):
    """The parameter names that `inspect.signature` or `inspect.getfullargspec` find."""

    names: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, Present]:
        """The names in `inspect.signature(f).parameters`."""
        return {name: Present() for name in self.names}

    @property
    def args(self) -> list[str]:
        """The names in `inspect.getfullargspec(f).args`."""
        return list(self.names)


# The attributes that may be read, by type. Whether it is a nightly (`dev`, `is_prerelease`) is not among them: a
# program that asks for it may run on one.
ATTRIBUTES: tuple[tuple[type, frozenset[str]], ...] = (
    (Version, frozenset("release major minor micro base_version epoch".split())),
    (LooseVersion, frozenset({"version", "vstring"})),
    (Distribution, frozenset({"version", "parsed_version"})),
    (Signature, frozenset({"parameters", "args"})),
)
# The methods that may be called, all without effects and with results no larger than what goes in.
METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (
        str,
        frozenset(
            "split rsplit partition rpartition startswith endswith replace strip lstrip rstrip removeprefix "
            "removesuffix lower upper join isdigit isnumeric isdecimal find count index".split()
        ),
    ),
    (dict, frozenset({"keys", "values", "get"})),
    (list, frozenset({"index", "count"})),
    (tuple, frozenset({"index", "count"})),
)


def allows(table: tuple[tuple[type, frozenset[str]], ...], value: object, name: str) -> bool:
    """Whether the table allows reading `name` from `value`."""
    return any(isinstance(value, kind) and name in names for kind, names in table)
