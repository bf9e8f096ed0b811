"""Version tests stated by a name: `_TORCH_GREATER_EQUAL_2_1`, `is_torch_less_or_equal`, `torch_version`.

Projects import such constants and helpers from modules that are not available; their names tell their values.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from packaging.version import Version

from fsdp_migrate.records import NamedTuple

Comparison = Callable[[Any, Any], Any]

# Symbols and the functions of the module `operator`.
NAMES = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">=": "ge", ">": "gt"}
COMPARISONS: dict[str, Comparison] = {symbol: getattr(operator, name) for symbol, name in NAMES.items()}

_WORDS = {
    ">=": (
        r"greater(?:_than)?_or_equal(?:_than|_to)?|greater_equal(?:_than|_to)?|gte|geq|ge|at_least|min(?:_version)?"
        r"|since|from"
    ),
    "<=": (
        r"less(?:er)?(?:_than)?_or_equal(?:_than|_to)?|less(?:er)?_equal(?:_than|_to)?|lte|leq|le|at_most"
        r"|max(?:_version)?|up_to"
    ),
    ">": r"greater(?:_than)?|gt|newer_than|later_than|after|above",
    "<": r"less(?:er)?(?:_than)?|lt|before|below|older_than|earlier_than",
    "==": r"equals?(?:_to)?|eq",
}
_GROUPS = {f"c{number}": symbol for number, symbol in enumerate(_WORDS)}
_COMPARATOR = "|".join(f"(?P<{group}>{_WORDS[symbol]})" for group, symbol in _GROUPS.items())
_SUBJECT = r"(?:(?P<verb>is|has|have|use|uses|using|with)_)?(?:py)?torch(?:_version)?"
# Few files have such names: none of these is compiled before there is one.
_CONSTANT = (
    rf"{_SUBJECT}(?:_(?:{_COMPARATOR}))?_?v?(?P<version>\d+(?:_\d+)*)"
    r"(?:_(?P<later>available|or_later|or_newer|or_greater|or_higher|or_above|and_later|and_above|plus|up)"
    r"|_(?P<earlier>or_earlier|or_older|or_below|or_lower))?"
)
_FUNCTION = rf"{_SUBJECT}_(?:{_COMPARATOR})"
_VERSION = r"(?:get_)?(?:py)?torch_ver(?:sion)?"


class NamedTest(NamedTuple):
    """A comparison of torch's version in a name; `operator` is None if the name does not tell it."""

    operator: str | None
    version: tuple[int, ...]

    def holds(self, release: Version) -> bool | None:
        """Whether `release` passes, None if the name does not decide it.

        For `GREATER_2_1`, 2.1.2 may pass or not. `IS_TORCH_2_1` may mean 2.1 only, or 2.1 and newer.
        """
        line = release.release[: len(self.version)]
        if line == self.version:
            return None if self.operator in ("<=", ">") else self.operator != "<"
        if self.operator is None:
            return None if line > self.version else False
        return bool(COMPARISONS[self.operator](line, self.version))


@cache
def constant(name: str) -> NamedTest | None:
    """The test in the name of a constant (or of a function without arguments), None if there is none."""
    match = re.fullmatch(_CONSTANT, _plain(name))
    if match is None:
        return None
    symbol = _operator(match)
    if symbol is None:
        if match["later"] or match["verb"] not in (None, "is"):
            symbol = ">="
        elif match["earlier"]:
            symbol = "<="
        elif match["verb"] is None:
            return None
    return NamedTest(symbol, _version(match["version"]))


@cache
def function(name: str) -> str | None:
    """The operator with which a function of this name compares torch with its argument, None if there is none."""
    match = re.fullmatch(_FUNCTION, _plain(name))
    return None if match is None else _operator(match)


def passes(symbol: str, torch: Version, wanted: Version) -> bool | None:
    """The outcome of a helper named after `symbol`; None at the limit, where helpers called "greater" differ."""
    if symbol in ("<=", ">") and torch.release[: len(wanted.release)] == wanted.release:
        return None
    return bool(COMPARISONS[symbol](torch, wanted))


@cache
def is_version(name: str) -> bool:
    """Whether the name of a constant or function means torch's version."""
    return re.fullmatch(_VERSION, _plain(name)) is not None


def _plain(name: str) -> str:
    return name.strip("_").lower()


def _operator(match: re.Match[str]) -> str | None:
    return next((symbol for group, symbol in _GROUPS.items() if match[group]), None)


def _version(text: str) -> tuple[int, ...]:
    parts = tuple(int(part) for part in text.split("_"))
    # `TORCH_GE_21` and `TORCH_GE_113` leave out the dot: no torch has a two-digit major.
    if len(parts) == 1 and parts[0] > 9:
        return int(text[0]), int(text[1:])
    return parts
