"""The lower bound in one requirement on torch, in the dialects of pip, Poetry and conda."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from fsdp_migrate.patterns import pattern
from fsdp_migrate.records import NamedTuple

# What starts like this means the distribution torch, readable or not; `torch is needed` and `torchvision` do not.
_PIP_TORCH = pattern(r"\s*torch\s*(?:[\[@;(<>=!~]|$)", re.IGNORECASE)
# The usual form, for which the parser of packaging, which takes long to load, is not needed.
_CLAUSE = r"([<>]=?|~=|!=|==)\s*([0-9]+(?:\.[0-9]+)+)"
_PLAIN_TORCH = pattern(rf"\s*torch\s*(?:{_CLAUSE}(?:\s*,\s*{_CLAUSE})*)?\s*", re.IGNORECASE)
_CONDA_TORCH = r"(?i)(?:\S+::)?pytorch(?:-cpu|-gpu)?(?=[\s<>=!~\[]|$)(.*)"
_TERM = r"(\^|~=|~|>=|<=|!=|={1,3}|>|<)?\s*(\d[^\s,|]*|\*)"
_LOWER = frozenset([">=", ">", "~=", "~", "^"])


class UnreadableError(ValueError):
    """A requirement on torch cannot be parsed. The message is the requirement."""


class LowerBound(NamedTuple):
    """The oldest torch that a requirement allows; with `exclusive` the newest that it excludes."""

    version: Version
    exclusive: bool = False

    def __str__(self) -> str:
        return f"{'>' if self.exclusive else '>='}{self.version}"


class Requirement(NamedTuple):
    """A requirement on torch: its text without marker, and its lower bound if it has one.

    Upper bounds, exclusions and pins (`==`) give none: they name the torch that a project is about to leave.
    """

    text: str
    bound: LowerBound | None = None


def pip_requirement(text: str) -> Requirement | None:
    """Parse a requirement of pip (PEP 508), whatever its environment marker is; None if it is not on torch.

    Raises:
        UnreadableError: it names torch and cannot be read.
    """
    if not _PIP_TORCH.match(text):
        return None
    bounds = [_bound(operator, version) for operator, version in _specifiers(text) if operator in _LOWER]
    return Requirement(_written(text), max(bounds, default=None))


def _specifiers(text: str) -> list[tuple[str, str]]:
    """The version specifiers of a requirement: operators and versions.

    Raises:
        UnreadableError: it cannot be read.
    """
    if _PLAIN_TORCH.fullmatch(text):
        return re.findall(_CLAUSE, text)
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as PipRequirement

    try:
        return [(one.operator, one.version) for one in PipRequirement(text.strip()).specifier]
    except InvalidRequirement:
        raise UnreadableError(text.strip()) from None


def conda_requirement(text: str) -> Requirement | None:
    """Parse an entry of a conda environment (`pytorch>=2.0`, `conda-forge::pytorch 2.1.*`); None if not on PyTorch.

    Raises:
        UnreadableError: it names PyTorch and cannot be read.
    """
    match = re.fullmatch(_CONDA_TORCH, text.strip())
    if match is None:
        return None
    # What follows the version behind a blank is the build.
    version = re.sub(r"([<>=!~,|])\s+", r"\1", match[1].strip()).partition(" ")[0]
    return Requirement(_written(text), _loose_bound(version, text) if version else None)


def poetry_requirement(constraint: object) -> Requirement:
    """Parse the value of `torch =` in a table of Poetry: a constraint, or a table that may contain one.

    Raises:
        UnreadableError: the constraint cannot be read.
    """
    version = constraint.get("version", "*") if isinstance(constraint, dict) else constraint
    text = f'torch = "{version}"'
    if not isinstance(version, str):
        raise UnreadableError(text)
    return Requirement(text, _loose_bound(version, text))


def _loose_bound(constraint: str, text: str) -> LowerBound | None:
    """The lower bound of alternatives (`|`) of terms that all have to hold."""
    bounds = [_bound_of_all(part, text) for part in re.split(r"\|\|?", constraint)]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if len(known) == len(bounds) else None


def _bound_of_all(terms: str, text: str) -> LowerBound | None:
    found = re.findall(_TERM, terms)
    if not found or re.sub(_TERM, "", terms).strip(" ,"):
        raise UnreadableError(text.strip())
    try:
        bounds = [_bound(operator, version.rstrip(".*")) for operator, version in found if operator in _LOWER]
    except InvalidVersion:
        raise UnreadableError(text.strip()) from None
    return max(bounds, default=None)


def _bound(operator: str, written: str) -> LowerBound:
    # A nightly or release candidate of 2.6 has what 2.6 has.
    version = Version(written)
    return LowerBound(Version(version.base_version), operator == ">" and not version.is_prerelease)


def _written(text: str) -> str:
    return text.partition(";")[0].strip()
