"""What names that are imported from the other modules of a project are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fsdp_migrate.facts.releases.reach import Homes
from fsdp_migrate.facts.scopes import Structure


class ForeignClass(NamedTuple):
    """A subclass of FSDP in another module: its name, and the members that it and its bases in the project have."""

    name: str
    members: frozenset[str]


class ImportedNames(Homes, Protocol):
    """Answers for names of other modules, written as the asking module imports them: `..dist.FSDP`, `mylib.FSDP`."""

    def meanings(self, name: str) -> Sequence[str | None] | None:
        """The full names that `name` stands for, None among them for anything that has none.

        None alone where `name` is not of the project, or is what its module defines itself.
        """

    def direct_import(self, bound: str, name: str, reads: Callable[[str], bool]) -> str:
        """Import statements for what of torch may be behind `name`, bound to `bound`, as far as the bytes tell.

        For a module, and for all of one with a star as `bound`, those for the names that the asking module `reads`.
        """

    def defines(self, name: str) -> bool | None:
        """Whether the module of the project that `name` starts with has it, None when no such module is at hand."""

    def is_variable(self, name: str) -> bool:
        """Whether a module of the project assigns `name`, or it is an attribute of what one defines."""

    def names_fsdp(self, name: str) -> bool:
        """Whether the module of the project that `name` comes from names FSDP's class."""

    def subclass(self, name: str) -> ForeignClass | None:
        """The class `name` if it derives from FSDP."""

    def members(self, name: str) -> frozenset[str]:
        """What the class `name` of the project has of its own and from its bases, nothing where that is no class."""


def imported_modules(structure: Structure) -> Iterator[str]:
    """The modules that a file imports or imports from, as it writes them; names may be modules too."""
    for node in structure.imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        base = "." * node.level + (node.module or "")
        if base.strip("."):
            yield base
        yield from (f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)
