"""What the parts of this room ask of one another: names of a module, and the releases that reach its nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from packaging.version import Version

from fsdp_migrate.facts.scopes import Binding, Structure

if TYPE_CHECKING:
    from fsdp_migrate.facts.names import Meaning
    from fsdp_migrate.facts.other_modules import Elsewhere


class Names(Protocol):
    """What is asked of the resolver of a module; `elsewhere` answers for the other modules of its project."""

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Who answers for the other modules of the project, None where there is nobody."""

    def qualified(self, node: ast.expr) -> str | None:
        """The dotted name of an expression, as imported: `torch.__version__`, `.imports.is_torch_version`."""

    def definition(self, node: ast.Name) -> ast.expr | ast.FunctionDef | None:
        """The expression or function that a name is bound to, None unless there is exactly one binding."""


@runtime_checkable
class ScopedNames(Names, Protocol):
    """A resolver that also lists the bindings of names that have several."""

    structure: Structure

    def meanings(self, node: ast.expr) -> Sequence[Meaning]:
        """Everything that an expression may refer to where it stands."""

    def bindings(self, node: ast.Name) -> Sequence[Binding]:
        """The bindings that a name may have where it is used, in source order."""


class Attempted(Protocol):
    """What is known about a try statement."""

    def surely(self, child: ast.AST, release: Version) -> bool:
        """Whether control surely gets to `child` on `release`, as far as torch's names decide it."""


class Reach(Protocol):
    """The releases that reach the nodes of one module; a set of releases is an integer with a bit for each."""

    bits: Mapping[Version, int]
    everywhere: int
    names: Names
    parents: Mapping[ast.AST, ast.AST]

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
class Held:
    """What a name may hold: the value of an expression (item `index` of it, in an unpacking), or an imported name."""

    value: ast.expr | None = None
    index: int | None = None
    target: str | None = None
