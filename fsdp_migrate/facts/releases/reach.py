"""Protocols between the modules of this folder: names of a module, and the releases that reach its nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from packaging.version import Version

from fsdp_migrate.facts.scopes import Binding, Structure
from fsdp_migrate.records import NamedTuple

T = TypeVar("T")


class Resolver(Protocol):
    """The resolver of a module; `project` answers for the other modules of its project."""

    @property
    def project(self) -> Homes | None:
        """The answers for the other modules of the project, None if there are none."""

    def qualified(self, node: ast.expr) -> str | None:
        """The dotted name of an expression, as imported: `torch.__version__`, `.imports.is_torch_version`."""

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """The expression or function that a name is bound to, None unless it has exactly one binding."""


class Homes(Protocol):
    """Answers for the other modules of a project."""

    def home(self, name: str) -> tuple[ForeignModule, str] | None:
        """The module that binds what `name` means for torch's version, and its name there."""


class Exports(Protocol):
    """The resolver of another module."""

    def exported(self, name: str) -> Sequence[Binding]:
        """The bindings of a top-level name that importers may see."""


class ForeignModule(Protocol):
    """Another module of the project, asked about torch's version."""

    @property
    def names(self) -> Exports:
        """What its names are bound to."""

    @property
    def gates(self) -> Reach:
        """The releases that reach its nodes."""

    def memo(self, key: object, compute: Callable[[], T]) -> T:
        """The result of `compute`, computed once for each key."""


@runtime_checkable
class ScopedResolver(Resolver, Protocol):
    """A resolver that also lists several bindings of a name."""

    structure: Structure

    def bindings(self, node: ast.Name) -> Sequence[Binding]:
        """The bindings that a name may have at its place, in source order."""


class Flow(Protocol):
    """The control flow of a module, for names and functions with several values."""

    def in_force(self, node: ast.Name, release: Version) -> tuple[Sequence[BoundValue], bool]:
        """All values that a name may have on `release`, and whether they depend on the release.

        None at all if a binding is not understood.
        """

    def bound_to(self, bindings: Sequence[Binding], release: Version) -> tuple[Sequence[BoundValue], bool]:
        """The same for a name with these bindings."""

    def is_set(self, node: ast.Attribute, qualified: str) -> bool:
        """Whether the file assigns the attribute that `node` reads, by its full name."""

    def is_changed(self, node: ast.Name) -> bool:
        """Whether the file changes the list in a name."""

    def is_plain(self, function: ast.FunctionDef) -> bool:
        """Whether a call runs the body of a function and returns its result."""


class Marks(Protocol):
    """The releases on which functions are not skipped."""

    def defined(self, definition: ast.AST, depth: int) -> int:
        """The releases that a mark allows, by its definition."""


class Attempted(Protocol):
    """The facts about a `try` statement."""

    def surely(self, child: ast.AST, release: Version) -> bool:
        """Whether control surely reaches `child` on `release`, as far as torch's names decide it."""


class Reach(Protocol):
    """The releases that reach the nodes of one module; a set of releases is an integer with a bit for each."""

    bits: Mapping[Version, int]
    everywhere: int
    names: Resolver
    parents: Mapping[ast.AST, ast.AST]

    @property
    def flags(self) -> Flow:
        """The values of the module's names and functions."""

    @property
    def skips(self) -> Marks:
        """The releases on which its functions are not skipped."""

    def mask(self, node: ast.AST) -> int:
        """The releases on which control can reach `node`."""

    def sides(self, test: ast.expr) -> tuple[int, int]:
        """The releases on which a condition may be true, and those on which it may be false."""

    def completes(self, block: Iterable[ast.stmt]) -> int:
        """The releases on which control may reach the end of `block`."""

    def translated(self, foreign: Reach, mask: int) -> int:
        """A result of another module, in the bits of this one."""

    def attempt(self, node: ast.Try) -> Attempted:
        """The facts about a `try` statement."""


class BoundValue(NamedTuple):
    """A value that a name may have: an expression (item `index` of it, in an unpacking), or an imported name."""

    value: ast.expr | None = None
    index: int | None = None  # type: ignore[assignment]  # not the method of tuples
    target: str | None = None
