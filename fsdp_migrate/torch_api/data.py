"""What each torch release offers, looked up in data read from the wheels by `tools/build_torch_api.py`.

Each area of torch has a file (`AREAS`), loaded when something in it is first asked for: JSON with `releases`, and
`names` by dotted name, a row each. Rows speak of ranges of releases: `2.1.2-2.3.1`, `2.4.1-` (until the newest), with
commas between several. What a row may have:

* `in`: the ranges that have the name; `optional`: those in which it depends on the build of torch.
* by range (an empty range: always): `kind`, `signature` (parameters as written in Python), `value` of a short constant,
  `target` of an alias (where the thing is defined), `bases` of a class (its metaclass too; `?` stands for what nobody
  knows), `deprecated` (category and text), `deprecated_parameters` (the same by parameter).
* of a module, `module` by range: "whole" (all its names have rows), "shallow" (whole, but only some of its submodules),
  "partial" (some names have rows) or "unread"; and `foreign` by range: further names it takes from outside of torch.
* `instance`: what only instances of the class have, in some release.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
import zlib
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from typing import Any

from packaging.version import Version

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.torch_api import PUBLISHED, RELEASES
from fsdp_migrate.torch_api.unread import WARNINGS

PACKAGE = "torch.distributed.fsdp"

# The file that holds a name is that of the longest prefix.
AREAS = {
    "torch": "torch",
    "torch.distributed": "c10d",
    "torch.distributed._composable": "composable",
    "torch.distributed._composable_state": "composable",
    "torch.distributed._shard": "checkpoint",
    "torch.distributed._sharded_tensor": "checkpoint",
    "torch.distributed._sharding_spec": "checkpoint",
    "torch.distributed._state_dict_utils": "checkpoint",
    "torch.distributed._tensor": "tensor",
    "torch.distributed.checkpoint": "checkpoint",
    "torch.distributed.device_mesh": "tensor",
    "torch.distributed.fsdp": "fsdp",
    "torch.distributed.tensor": "tensor",
}
# How `tools/wheel_api/table.py` lays the JSON out, a row a line.
_BEFORE_ROWS, _BETWEEN_ROWS, _IN_ROW, _BEHIND_ROWS = ', "names": {\n"', ',\n"', '": ', "\n}}\n"
# What classes derive from that name these functions of `typing` as their base.
_MADE_OF: dict[str, Callable[[], object]] = {
    "typing.NamedTuple": lambda: namedtuple("_Tuple", ()),
    "typing.TypedDict": dict,
}
_MAX_DEPTH = 20
# So many rows are looked for in the text of a file before it is taken apart.
_FEW = 100

_Row = dict[str, Any]


class ParameterKind(Enum):
    """How a parameter takes its argument, named as in `inspect.Parameter`."""

    POSITIONAL_ONLY = "positional only"
    POSITIONAL_OR_KEYWORD = "positional or keyword"
    VAR_POSITIONAL = "var positional"
    KEYWORD_ONLY = "keyword only"
    VAR_KEYWORD = "var keyword"


class Parameter(NamedTuple):
    """One parameter of a signature; `self` and `cls` are never among them.

    `default` is the default as torch's source writes it; a dataclass field's factory is written as a call.
    """

    name: str
    has_default: bool
    kind: ParameterKind
    default: str | None = None


class Deprecation(NamedTuple):
    """The warning that using a name gives: its category (empty when it only marks, without a warning) and its text."""

    category: str
    text: str


class State(NamedTuple):
    """What a name is in one release that has it.

    `kind` is "module", "class", "function", "method", "staticmethod", "classmethod", "property", "constant", "field",
    "enum-member", or "alias" for what lies outside of the data. `signature` is written as in Python.
    """

    kind: str
    target: str | None
    signature: str | None
    deprecation: Deprecation | None


def unpacked(name: str) -> bytes:
    """The contents of a compressed file beside this one; `importlib.resources` takes longer to load than to read it."""
    with open(os.path.join(os.path.dirname(__file__), name), "rb") as stream:
        return zlib.decompress(stream.read(), zlib.MAX_WBITS | 16)  # of gzip, whose module takes longer to load


# Modules that torch itself puts into `sys.modules` in the place of an old one (2.0.1 _shard/checkpoint/__init__.py).
SAME_MODULES = {"torch.distributed._shard.checkpoint": "torch.distributed.checkpoint"}


def releases() -> tuple[Version, ...]:
    """The releases that the data was read from, oldest first."""
    return tuple(Version(text) for text in _load("fsdp").releases.split())


def exists(name: str, release: Version) -> bool | None:
    """Whether `release` has the dotted `name`; None when the data cannot tell.

    It can tell for the names of modules that it covers and for the members of their classes; not for what only
    instances have, what depends on the build of torch, and attributes such as `__doc__`. An unknown release counts as
    the known one of its minor, else as the next older one.
    """
    return _find(name, _number(release))[0]


def signature(name: str, release: Version) -> tuple[Parameter, ...] | None:
    """The parameters of the function, method or class `name` in `release`, None when absent or not recorded."""
    text = signature_text(name, release)
    return None if text is None else _parameters(text)


def signature_text(name: str, release: Version) -> str | None:
    """The parameters of `name` as Python writes them (`model, *, group=None`), None when absent or not recorded."""
    text: str | None = _fact(name, release, "signature")
    return text


def kind(name: str, release: Version) -> str | None:
    """What `name` is in `release`, in the words of `State.kind`; None when absent or not recorded."""
    word: str | None = _fact(name, release, "kind")
    return word


def target(name: str, release: Version) -> str | None:
    """Where the thing that `name` stands for is defined, None when that is `name` itself or `release` lacks it."""
    number = _number(release)
    present, real = _find(name, number)
    if present is False or real == name or (present is None and not _in(_row(name), number)):
        return None
    return real


def deprecation(name: str, release: Version) -> Deprecation | None:
    """The deprecation that using `name` meets in `release`."""
    number = _number(release)
    if name in WARNINGS:
        since, *warning = WARNINGS[name]
        return Deprecation(*warning) if number >= _number(Version(since)) else None
    own = _at(_row(name), "deprecated", number) if _in(_row(name), number) else None
    found = own or _fact(name, release, "deprecated")
    return Deprecation(*found) if found else None


def deprecated_parameters(name: str, release: Version) -> Mapping[str, Deprecation]:
    """The parameters of `name` for which `release` warns when they are used."""
    found = _fact(name, release, "deprecated_parameters") or {}
    return {parameter: Deprecation(*warning) for parameter, warning in found.items()}


def value(name: str, release: Version) -> str | None:
    """The value of a constant as Python writes it, None when it is not a short literal."""
    text: str | None = _fact(name, release, "value")
    return text


def first(name: str) -> Version | None:
    """The oldest of `RELEASES` that has `name`, None when none is known to."""
    return next((release for release in RELEASES if exists(name, release)), None)


def last(name: str) -> Version | None:
    """The newest of `RELEASES` that has `name`, None when the newest known one still has it or none is known to."""
    newest = next((release for release in reversed(RELEASES) if exists(name, release)), None)
    return None if newest == RELEASES[-1] else newest


def is_module(name: str) -> bool:
    """Whether a name is a module, in the newest release that has it."""
    return kind(name, last(name) or RELEASES[-1]) == "module"


def names(prefix: str = "torch") -> Iterator[str]:
    """Every dotted name of some release that is, or lies below, `prefix`; not what a module takes from elsewhere."""
    below = f"{prefix}."
    areas = [area_of(prefix), *(area for start, area in AREAS.items() if start.startswith(below))]
    for area in dict.fromkeys(area for area in areas if area is not None):
        yield from (name for name in _load(area).rows if name == prefix or name.startswith(below))


@cache
def history(name: str) -> Mapping[Version, State]:
    """What `name` is in each known release that has it, or has it in some builds; oldest first."""
    states = {}
    for release in PUBLISHED:
        if exists(name, release) or _in(_row(name), _number(release)):
            states[release] = State(
                kind(name, release) or "alias",
                target(name, release),
                signature_text(name, release),
                deprecation(name, release),
            )
    return states


@cache
def area_of(name: str) -> str | None:
    """The file that holds `name`, None when it is not torch's."""
    while name and name not in AREAS:
        name = name.rpartition(".")[0]
    return AREAS.get(name)


class _Area:
    """A file, and its rows as they are written: taking all apart is most of a short run, which asks for few of them."""

    def __init__(self, text: str) -> None:
        head, _, rows = text.removesuffix(_BEHIND_ROWS).partition(_BEFORE_ROWS)
        self.releases: str = json.loads(f"{head}}}")["releases"]
        self._text = f"{_BETWEEN_ROWS}{rows}{_BETWEEN_ROWS}"
        self._asked = 0

    @cached_property
    def rows(self) -> dict[str, str]:
        """All rows by name."""
        return dict(row.split(_IN_ROW, 1) for row in self._text.split(_BETWEEN_ROWS)[1:-1])

    def row(self, name: str) -> str | None:
        """The row of a name, None if it has none."""
        self._asked += 1
        if self._asked > _FEW:
            return self.rows.get(name)
        before = f"{_BETWEEN_ROWS}{name}{_IN_ROW}"
        start = self._text.find(before)
        if start < 0:
            return None
        start += len(before)
        return self._text[start : self._text.index(_BETWEEN_ROWS, start)]


@cache
def _load(area: str) -> _Area:
    return _Area(unpacked(f"{area}.json.gz").decode())


@cache
def _row(name: str) -> _Row | None:
    area = area_of(name)
    text = None if area is None else _load(area).row(name)
    return None if text is None else json.loads(text)


@cache
def _number(release: Version) -> int:
    """The place of the known release that stands for `release`, -1 when it is older than all."""
    minor = release.release[:2]
    later = [n for n, known in enumerate(PUBLISHED) if known >= release and known.release[:2] == minor]
    return later[0] if later else sum(known <= release for known in PUBLISHED) - 1


@cache
def _numbers(ranges: str) -> range | frozenset[int]:
    """The places of the releases that lie in `ranges`; all when it is empty."""
    found: set[int] = set()
    for text in ranges.split(",") if ranges else ():
        start, _, end = text.partition("-")
        found.update(range(_number(Version(start)), (_number(Version(end)) if end else len(PUBLISHED) - 1) + 1))
    return frozenset(found) if ranges else range(len(PUBLISHED))


def _in(row: _Row | None, number: int, key: str = "in") -> bool:
    return row is not None and key in row and number in _numbers(row[key])


def _at(row: _Row | None, column: str, number: int) -> Any:
    """The value of a column in a release, None when there is none."""
    runs = row.get(column, {}) if row is not None else {}
    return next((held for ranges, held in runs.items() if number in _numbers(ranges)), None)


def _fact(name: str, release: Version, column: str) -> Any:
    """The value of a column for what `name` stands for in `release`."""
    number = _number(release)
    present, real = _find(name, number)
    if present is False:
        return None
    row = _row(real)
    if not _in(row, number):
        # The alias itself says what is known of a thing that lies in a module without rows.
        row = _row(_listed(name, number))
    return _at(row, column, number) if _in(row, number) else None


def _listed(name: str, number: int) -> str:
    """The alias that `name` is, or that it is when the modules and classes on its way have their real names."""
    owner, _, part = name.rpartition(".")
    return name if _row(name) is not None or not owner else f"{_find(owner, number)[1]}.{part}"


class _Known(NamedTuple):
    """What a name is in one release: whether it is there, and the name it is defined under."""

    present: bool | None
    real: str


# By name and by the place of the release: there are many releases, and few of them differ.
_KNOWN: dict[str, list[_Known | None]] = {}
_SAME: dict[_Known, _Known] = {}


def _find(name: str, number: int, depth: int = 0) -> _Known:
    """What `name` is in a release."""
    if depth > _MAX_DEPTH:
        return _Known(None, name)
    known = _KNOWN.get(name)
    if known is None:
        known = _KNOWN[name] = [None] * (len(PUBLISHED) + 1)  # the last one is for those older than all
    found = known[number]
    if found is None:
        found = _Known(*_sought(name, number, depth))
        found = known[number] = _SAME.setdefault(found, found)
    return found


def _sought(name: str, number: int, depth: int) -> tuple[bool | None, str]:
    if area_of(name) is None:
        return None, name
    row = _row(name)
    if row is not None and _in(row, number):
        present = None if _in(row, number, "optional") else True
        held = _at(row, "target", number)
        # An alias that is listed is there, whatever it stands for.
        return present, name if held is None else _find(held, number, depth + 1)[1]
    owner, _, part = name.rpartition(".")
    if not owner:
        return None, name
    there, real = _find(owner, number, depth + 1)
    if not there:
        return there, name
    if real != owner:
        found = _find(f"{real}.{part}", number, depth + 1)
        if found[0] or not _at(_row(owner), "module", number):
            return found
    return _unlisted(owner, part, number, depth)


def _unlisted(owner: str, part: str, number: int, depth: int) -> tuple[bool | None, str]:
    """What is known of a name that has no row in the release, although what it lies in is there."""
    row, name = _row(owner), f"{owner}.{part}"
    how = _at(row, "module", number)
    if row is not None and how is not None:
        if any(part in taken.split() for ranges, taken in row.get("foreign", {}).items() if number in _numbers(ranges)):
            return True, name
        known = how in ("whole", "shallow") or _row(name) is not None
        return (False if known and not part.startswith("__") else None), name
    if row is None or _at(row, "kind", number) != "class":
        return None, name
    return _inherited(row, name, number, depth)


def _inherited(row: _Row, name: str, number: int, depth: int) -> tuple[bool | None, str]:
    part = name.rpartition(".")[2]
    known = not part.startswith("__") and part not in row.get("instance", "").split()
    for base in _at(row, "bases", number) or ():
        if _row(base) is None:
            present, real = _outside(base, part), f"{base}.{part}"
        else:
            present, real = _find(f"{base}.{part}", number, depth + 1)
        if present:
            return True, real
        known = known and present is not None
    return (False if known else None), name


@cache
def _outside(cls: str, part: str) -> bool | None:
    """Whether a class of the standard library has a member, None when it is another class."""
    if cls in _MADE_OF:
        return hasattr(_MADE_OF[cls](), part)
    module, _, name = cls.rpartition(".")
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    return hasattr(getattr(importlib.import_module(module), name, None), part)


@cache
def _parameters(text: str) -> tuple[Parameter, ...]:
    function = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    found = [
        _parameter(arg, default, ParameterKind.POSITIONAL_ONLY if arg in args.posonlyargs else _ORDINARY)
        for arg, default in zip(positional, [*defaults, *args.defaults])
    ]
    if args.vararg:
        found.append(_parameter(args.vararg, None, ParameterKind.VAR_POSITIONAL))
    found += [_parameter(a, d, ParameterKind.KEYWORD_ONLY) for a, d in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        found.append(_parameter(args.kwarg, None, ParameterKind.VAR_KEYWORD))
    return tuple(found)


_ORDINARY = ParameterKind.POSITIONAL_OR_KEYWORD


def _parameter(arg: ast.arg, default: ast.expr | None, taken: ParameterKind) -> Parameter:
    return Parameter(arg.arg, default is not None, taken, None if default is None else ast.unparse(default))
