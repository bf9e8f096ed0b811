"""What the parts of this room ask of one another: names of a module, and the releases that reach its nodes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from packaging.version import Version

from fsdp_migrate.facts.scopes import Binding, Structure

T = TypeVar("T")


class Resolver(Protocol):
    """What is asked of the resolver of a module; `project` answers for the other modules of its project."""

    @property
    def project(self) -> Homes | None:
        """Who answers for the other modules of the project, None where there is nobody."""

    def qualified(self, node: ast.expr) -> str | None:
        """The dotted name of an expression, as imported: `torch.__version__`, `.imports.is_torch_version`."""

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """The expression or function that a name is bound to, None unless there is exactly one binding."""


class Homes(Protocol):
    """Answers for the other modules of a project."""

    def home(self, name: str) -> tuple[ForeignModule, str] | None:
        """The module that binds what may tell of torch's version under `name`, and its name there."""


class Exports(Protocol):
    """What is asked of the resolver of another module."""

    def exported(self, name: str) -> Sequence[Binding]:
        """The bindings of a top-level name that may be in force for those who import it."""


class ForeignModule(Protocol):
    """Another module of the project, asked for what it says about torch's version."""

    @property
    def names(self) -> Exports:
        """What its names are bound to."""

    @property
    def gates(self) -> Reach:
        """The releases that reach its nodes."""

    def memo(self, key: object, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed once for each key."""


@runtime_checkable
class ScopedResolver(Resolver, Protocol):
    """A resolver that also lists the bindings of names that have several."""

    structure: Structure

    def own_classes(self, node: ast.expr) -> Sequence[ast.ClassDef]:
        """The classes of the module that an expression may refer to."""

    def bindings(self, node: ast.Name) -> Sequence[Binding]:
        """The bindings that a name may have where it is used, in source order."""


class Flow(Protocol):
    """What is asked of the control flow of a module, for names and functions with several outcomes."""

    def in_force(self, node: ast.Name, release: Version) -> tuple[Sequence[BoundValue], bool]:
        """Everything that a name may hold on `release`, and whether that depends on the release.

        Nothing at all when one of the bindings is not understood.
        """

    def bound_to(self, bindings: Sequence[Binding], release: Version) -> tuple[Sequence[BoundValue], bool]:
        """As `in_force`, of a name with these bindings."""

    def is_set(self, node: ast.Attribute, qualified: str) -> bool:
        """Whether the file gives the attribute that `node` reads, by its full name, another value."""

    def is_changed(self, node: ast.Name) -> bool:
        """Whether the file changes a list by one of its names."""

    def is_plain(self, function: ast.FunctionDef) -> bool:
        """Whether a call runs the body of a function and returns what it returns."""

    def returned(self, function: ast.FunctionDef, release: Version) -> tuple[Sequence[ast.expr], bool]:
        """Everything that a function may return on `release`, and whether that depends on the release.

        Nothing at all when it may also end without a value.
        """


class Marks(Protocol):
    """The releases on which functions are not skipped."""

    def defined(self, definition: ast.AST, depth: int) -> int:
        """Those that a mark lets by, given what it is bound to."""


class Attempted(Protocol):
    """What is known about a try statement."""

    def surely(self, child: ast.AST, release: Version) -> bool:
        """Whether control surely gets to `child` on `release`, as far as torch's names decide it."""


class Reach(Protocol):
    """The releases that reach the nodes of one module; a set of releases is an integer with a bit for each."""

    bits: Mapping[Version, int]
    everywhere: int
    names: Resolver
    parents: Mapping[ast.AST, ast.AST]

    @property
    def flags(self) -> Flow:
        """What names and functions of the module come to."""

    @property
    def skips(self) -> Marks:
        """The releases on which its functions are not skipped."""

    def mask(self, node: ast.AST) -> int:
        """The releases on which control can reach `node`."""

    def sides(self, test: ast.expr) -> tuple[int, int]:
        """The releases on which a condition may be true, and those on which it may be false."""

    def completes(self, block: Iterable[ast.stmt]) -> int:
        """The releases on which control may come out at the end of `block`."""

    def translated(self, foreign: Reach, mask: int) -> int:
        """What was found for another module, as bits of these."""

    def attempt(self, node: ast.Try) -> Attempted:
        """What is known about a try statement."""


@dataclass(frozen=True)
class BoundValue:
    """What a name may hold: the value of an expression (item `index` of it, in an unpacking), or an imported name."""

    value: ast.expr | None = None
    index: int | None = None
    target: str | None = None
