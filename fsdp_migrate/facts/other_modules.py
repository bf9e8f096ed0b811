"""Names imported from other modules of a project."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Protocol

from fsdp_migrate.facts.releases.reach import Homes
from fsdp_migrate.facts.scopes import Structure
from fsdp_migrate.records import NamedTuple


class ForeignClass(NamedTuple):
    """A subclass of FSDP in another module: its name, and its members with those of its bases in the project."""

    name: str
    members: frozenset[str]


class ImportedNames(Homes, Protocol):
    """Answers about names of other modules, as the asking module imports them: `..dist.FSDP`, `mylib.FSDP`."""

    def meanings(self, name: str) -> Sequence[str | None] | None:
        """The full names that `name` means, None among them for anything without one.

        Only None if `name` is not of the project, or if its module defines it.
        """

    def direct_imports(self, named: Iterable[tuple[str, str]], attributes: Set[str], used: Set[str]) -> str:
        """Import statements for what of torch may be behind imports, as far as the bytes tell.

        `named` are the bound names, a star for all of a module, each with the full name. Of a module count the names
        that are read off something (`attributes`), behind a star those that are `used`.
        """

    def defines(self, name: str) -> bool | None:
        """Whether the module of the project in `name` has it, None if there is no such module."""

    def is_variable(self, name: str) -> bool:
        """Whether a module of the project assigns `name`, or defines its owner."""

    def names_fsdp(self, name: str) -> bool:
        """Whether the module of the project that provides `name` names FSDP's class."""

    def subclass(self, name: str) -> ForeignClass | None:
        """The class `name` if it derives from FSDP."""

    def members(self, name: str) -> frozenset[str]:
        """The members of the class `name` of the project and its bases, none if it is not a class."""


def imported_modules(structure: Structure) -> Iterator[str]:
    """The modules that a file imports, or imports from, as written; the names may be modules, too."""
    for node in structure.imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        base = "." * node.level + (node.module or "")
        if base.strip("."):
            yield base
        yield from (f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)
