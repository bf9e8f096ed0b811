"""What the facts of one module ask of the other modules of its project."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.facts.scopes import Binding
    from fsdp_migrate.findings import Consulted


class ForeignClass(NamedTuple):
    """A subclass of FSDP in another module: its name, and the members that it and its bases in the project have."""

    name: str
    members: frozenset[str]


class Use(NamedTuple):
    """A place where another module reads a name: its facts, the node, and what to call its file in a message."""

    facts: ModuleFacts
    node: ast.expr
    shown: str


class Elsewhere(Protocol):
    """Answers for names of other modules, written as the asking module imports them: `..dist.FSDP`, `mylib.FSDP`."""

    asked_all: bool

    @property
    def asked_beyond(self) -> bool:
        """Whether an answer so far depends on files of the project that the run does not look at."""

    @property
    def consulted(self) -> Sequence[Consulted]:
        """The files that the answers so far depend on."""

    def meanings(self, name: str) -> Sequence[str | None] | None:
        """The full names that `name` stands for, None among them for anything that has none.

        None alone where `name` is not of the project, or is what its module defines itself.
        """

    def written(self, raw: bytes) -> bytes:
        """A text of the asking module with a `direct_import` for each of its imports, found without a parse."""

    def direct_import(self, bound: str, name: str, reads: Callable[[str], bool]) -> str:
        """Import statements for what of torch may be behind `name`, bound to `bound`, as far as the bytes tell.

        For a module, and for all of one with a star as `bound`, those for the names that the asking module `reads`.
        """

    def is_own(self, name: str) -> bool:
        """Whether `name` is a module of the project or goes through one."""

    def defines(self, name: str) -> bool | None:
        """Whether the module of the project that `name` starts with has it, None when no such module is at hand."""

    def is_variable(self, name: str) -> bool:
        """Whether a module of the project assigns `name`, or it is an attribute of what one defines."""

    def is_optional(self, name: str) -> bool:
        """Whether a module of the project that `name` comes through has something else for want of torch's."""

    def names_fsdp(self, name: str) -> bool:
        """Whether the module of the project that `name` comes from names FSDP's class."""

    def subclass(self, name: str) -> ForeignClass | None:
        """The class `name` if it derives from FSDP."""

    def members(self, name: str) -> frozenset[str]:
        """What the class `name` of the project has of its own and from its bases, nothing where that is no class."""

    def definition(self, name: str) -> tuple[ModuleFacts, Sequence[Binding]] | None:
        """The module of the project that defines or assigns `name`, and what binds it there."""

    def home(self, name: str) -> tuple[ModuleFacts, str] | None:
        """The module that binds what may tell of torch's version under `name`, and its name there."""

    def is_imported(self, name: str) -> bool:
        """Whether another module of the project takes the top-level `name` of the asking module."""

    def is_written(self, word: str) -> bool:
        """Whether another file of the project has a word."""

    def patcher(self, name: str, old: str) -> str | None:
        """What to call the file that patches the asking module's `name`, torch's `old`, there or in torch, or None."""

    def setters(self, name: str) -> Sequence[tuple[ModuleFacts, str]]:
        """Other modules that may assign an attribute `name` of something, each with what to call it in a message."""

    def uses(self, name: str) -> Sequence[Use] | None:
        """Where other modules read the asking module's `name`, None when there may be more such places."""
