"""What `torch.distributed.fsdp` holds in each torch release, looked up in data read from the wheels.

`fsdp.json.gz` has three parts: `releases`; `names`, by dotted name with `first` and `last` release (no `last`: still
there), `gaps` between them, `kind`, and by ranges of releases `signatures` (`a,*,b=,**c`), `targets` (what an alias
stands for) and `bases` of a class; `inherited`, which of the members occurring here a base class outside the package
has. Members that only instances have (annotated fields without a value) are not in it.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

from packaging.version import Version

PACKAGE = "torch.distributed.fsdp"
_MAX_DEPTH = 20

_Entry = dict[str, Any]


class ParameterKind(Enum):
    """How a parameter takes its argument, named as in `inspect.Parameter`."""

    POSITIONAL_ONLY = "positional only"
    POSITIONAL_OR_KEYWORD = "positional or keyword"
    VAR_POSITIONAL = "var positional"
    KEYWORD_ONLY = "keyword only"
    VAR_KEYWORD = "var keyword"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature; `self` and `cls` are never among them."""

    name: str
    has_default: bool
    kind: ParameterKind


def releases() -> tuple[Version, ...]:
    """The releases that the data was read from, oldest first."""
    return tuple(_order())


def exists(name: str, release: Version) -> bool | None:
    """Whether `release` has the dotted `name`; None when the data cannot tell.

    It can tell for what was ever seen in `torch.distributed.fsdp`, for members of its classes, and for anything
    asked of the package itself. An unknown release counts as the known one of its minor, else as the next older one.
    """
    return _Lookup(release).find(name)[0]


def signature(name: str, release: Version) -> tuple[Parameter, ...] | None:
    """The parameters of the function, method or class `name` in `release`, None when absent or not recorded."""
    present, real = _Lookup(release).find(name)
    if not present:
        return None
    for candidate in (real, name):
        text = _row(_load()["names"].get(candidate, {}).get("signatures", ()), release)
        if text is not None:
            return _parameters(text)
    return None


def first(name: str) -> Version | None:
    """The oldest known release that has `name`, None when none is known to."""
    return next((release for release in _order() if exists(name, release)), None)


def last(name: str) -> Version | None:
    """The newest release that has `name`, None when the newest known one still has it or none is known to."""
    newest = next((release for release in reversed(_order()) if exists(name, release)), None)
    return None if newest == list(_order())[-1] else newest


@cache
def _load() -> dict[str, Any]:
    raw = files(__package__).joinpath("fsdp.json.gz").read_bytes()
    data: dict[str, Any] = json.loads(gzip.decompress(raw))
    return data


@cache
def _order() -> dict[Version, str]:
    return {Version(text): text for text in _load()["releases"]}


@cache
def _index(text: str) -> int:
    return int(_load()["releases"].index(text))


@cache
def _number(release: Version) -> int:
    """The place of the known release that stands for `release`, -1 when it is older than all."""
    minor = release.release[:2]
    later = [n for n, known in enumerate(_order()) if known >= release and known.release[:2] == minor]
    return later[0] if later else sum(known <= release for known in _order()) - 1


def _row(rows: Any, release: Version) -> Any:
    """The value of the row (from, to, value) whose range holds `release`, None when there is none."""
    number = _number(release)
    return next((value for start, end, value in rows if _index(start) <= number <= _index(end)), None)


class _Lookup:
    """Resolves dotted names as one release would: through aliases, then through base classes."""

    def __init__(self, release: Version) -> None:
        self.release = release
        self.names: dict[str, _Entry] = _load()["names"]

    def find(self, name: str, depth: int = 0) -> tuple[bool | None, str]:
        """Whether the release has `name`, and the name it is defined under."""
        if depth > _MAX_DEPTH or not (name == PACKAGE or name.startswith(f"{PACKAGE}.")):
            return None, name
        current = PACKAGE
        present: bool | None = self._listed(PACKAGE)
        for part in name[len(PACKAGE) + 1 :].split(".") if name != PACKAGE else ():
            if present is not True:
                return present, name
            present, current = self._member(current, part, depth)
        return present, current

    def _member(self, owner: str, part: str, depth: int) -> tuple[bool | None, str]:
        name = f"{owner}.{part}"
        if self._listed(name):
            target = _row(self.names[name].get("targets", ()), self.release)
            if target is None:
                return True, name
            present, real = self.find(target, depth + 1)
            # An alias that is listed is there, whatever it stands for.
            return True, real if present is not None else target
        if owner not in self.names:
            return None, name
        return self._inherited(owner, part, depth)

    def _inherited(self, owner: str, part: str, depth: int) -> tuple[bool | None, str]:
        name = f"{owner}.{part}"
        bases = _row(self.names[owner].get("bases", ()), self.release) or ()
        for base in bases:
            if part in _load()["inherited"].get(base, ()):
                return True, f"{base}.{part}"
            present, real = self.find(f"{base}.{part}", depth + 1)
            if present:
                return True, real
        # Modules import more than the data lists (`math`, `logger`), and classes have what `object` has.
        known = name in self.names or owner == PACKAGE or any(f"{base}.{part}" in self.names for base in bases)
        return (False if known and not part.startswith("__") else None), name

    def _listed(self, name: str) -> bool:
        entry = self.names.get(name)
        if entry is None:
            return False
        number = _number(self.release)
        newest = _index(entry["last"]) if "last" in entry else len(_order()) - 1
        inside = _index(entry["first"]) <= number <= newest
        return inside and _load()["releases"][number] not in entry.get("gaps", ())


@cache
def _parameters(text: str) -> tuple[Parameter, ...]:
    parameters: list[Parameter] = []
    kind = ParameterKind.POSITIONAL_OR_KEYWORD
    for part in text.split(",") if text else ():
        if part == "/":
            parameters = [Parameter(p.name, p.has_default, ParameterKind.POSITIONAL_ONLY) for p in parameters]
        elif part.startswith("**"):
            parameters.append(Parameter(part[2:], False, ParameterKind.VAR_KEYWORD))
        elif part.startswith("*"):
            kind = ParameterKind.KEYWORD_ONLY
            if len(part) > 1:
                parameters.append(Parameter(part[1:], False, ParameterKind.VAR_POSITIONAL))
        else:
            parameters.append(Parameter(part.removesuffix("="), part.endswith("="), kind))
    return tuple(parameters)
