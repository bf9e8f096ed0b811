"""The scopes of a module: bindings and uses of names, and nesting."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# `except*` came with Python 3.11.
TRIES: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))


class Kind(Enum):
    """How a name is bound."""

    IMPORT = "import"
    ASSIGNMENT = "assignment"
    PARAMETER = "parameter"
    DEFINITION = "definition"
    OTHER = "other"


class Binding:
    """One place that binds a name.

    `target` is the dotted name of an import, `value` the expression of a plain `name = value`, `node` the statement,
    parameter or definition.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        node: ast.AST,
        scope: Scope,
        target: str | None = None,
        value: ast.expr | None = None,
        *,
        conditional: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.node = node
        self.scope = scope
        self.target = target
        self.value = value
        self.conditional = conditional

    @property
    def position(self) -> tuple[int, int]:
        """Line and column of the binding, for ordering."""
        return (getattr(self.node, "lineno", 0), getattr(self.node, "col_offset", 0))


class Scope:
    """A module, class, function, lambda or comprehension with the names it binds and the names it uses."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self.uses: dict[str, list[ast.Name]] = {}
        self.children: list[Scope] = []
        self.declared_global: frozenset[str] = frozenset()
        self.declared_nonlocal: frozenset[str] = frozenset()
        self.star_imports: tuple[str, ...] = ()

    @property
    def is_module(self) -> bool:
        """Whether this is the module's own scope."""
        return isinstance(self.node, ast.Module)

    @property
    def is_class(self) -> bool:
        """Whether this is a class body."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_function(self) -> bool:
        """Whether this is a function (lambdas included)."""
        return isinstance(self.node, FunctionNode)

    @property
    def module(self) -> Scope:
        """The module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def enclosing(self) -> Iterator[Scope]:
        """This scope and those around it, outwards."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def nested(self) -> Iterator[Scope]:
        """This scope and every one inside it."""
        stack = [self]
        while stack:
            scope = stack.pop()
            yield scope
            stack.extend(scope.children)

    @cached_property
    def users(self) -> Mapping[str, Sequence[Scope]]:
        """This scope and those inside it, by the names that each uses, in the order of `nested`."""
        found: dict[str, list[Scope]] = {}
        for scope in self.nested():
            for name in scope.uses:
                found.setdefault(name, []).append(scope)
        return found

    def lookup(self, name: str) -> Scope | None:
        """The scope whose binding of `name` is visible here, None for builtins and unbound names."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.declared_global:
                return scope.module if name in scope.module.bindings else None
            if name in scope.bindings and name not in scope.declared_nonlocal and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


_BY_PLACE = operator.attrgetter("lineno", "col_offset")
# The nodes that rules ask for.
_COLLECTED = (
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.If,
    ast.Yield,
    ast.YieldFrom,
)


class Structure:
    """The result of one walk over a module.

    `starts` has the nodes that are evaluated in another scope than their parent, with that scope; `found` the nodes
    that rules ask for.
    """

    def __init__(self, tree: ast.Module, module: Scope) -> None:
        self.tree = tree
        self.module = module
        self.parents: dict[ast.AST, ast.AST] = {}
        self.starts: dict[ast.AST, Scope] = {}
        self.found: dict[type[ast.AST], list[Any]] = {kind: [] for kind in _COLLECTED}

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which `node` is evaluated."""
        starts, parents = self.starts, self.parents
        scope = starts.get(node)
        while scope is None:
            node = parents[node]
            scope = starts.get(node)
        return scope

    def _in_order(self, *kinds: type[ast.AST]) -> list[Any]:
        return sorted((node for kind in kinds for node in self.found[kind]), key=_BY_PLACE)

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls, in source order, as everything below."""
        return self._in_order(ast.Call)

    @cached_property
    def attributes(self) -> list[ast.Attribute]:
        """All attributes."""
        return self._in_order(ast.Attribute)

    @cached_property
    def subscripts(self) -> list[ast.Subscript]:
        """All subscripts."""
        return self._in_order(ast.Subscript)

    @cached_property
    def strings(self) -> list[ast.Constant]:
        """All constants, strings among them."""
        return self._in_order(ast.Constant)

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """All imports."""
        return self._in_order(ast.Import, ast.ImportFrom)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, lambdas apart."""
        return self._in_order(ast.FunctionDef, ast.AsyncFunctionDef)

    @cached_property
    def choices(self) -> list[ast.If]:
        """All `if` statements."""
        return self._in_order(ast.If)

    @cached_property
    def yields(self) -> list[ast.Yield | ast.YieldFrom]:
        """All expressions that make a function a generator."""
        return self._in_order(ast.Yield, ast.YieldFrom)

    @cached_property
    def stores(self) -> list[ast.Attribute]:
        """The attributes that are assigned or deleted."""
        return [node for node in self.attributes if type(node.ctx) is not ast.Load]

    @cached_property
    def stores_by_name(self) -> Mapping[str, list[ast.Attribute]]:
        """The same by the attribute's name."""
        found: dict[str, list[ast.Attribute]] = {}
        for store in self.stores:
            found.setdefault(store.attr, []).append(store)
        return found

    @cached_property
    def read_attributes(self) -> Mapping[str, list[ast.Attribute]]:
        """The attributes that are read, by name."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.attributes:
            if type(node.ctx) is ast.Load:
                found.setdefault(node.attr, []).append(node)
        return found

    @cached_property
    def method_calls(self) -> Mapping[str, list[ast.Call]]:
        """The calls of attributes, by the attribute's name."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            if isinstance(call.func, ast.Attribute):
                found.setdefault(call.func.attr, []).append(call)
        return found


def reaching(bindings: list[Binding], use: tuple[int, int] | None) -> list[Binding]:
    """The bindings that can be in force at `use`; None for a use in a nested scope, which runs at any later time.

    An unconditional binding ends the ones before it. A later binding in the same scope only counts if there is none
    before the use (a loop may carry it back).
    """
    before = bindings if use is None else [b for b in bindings if b.position < use]
    return in_force(before) if before else list(bindings)


def in_force(bindings: list[Binding]) -> list[Binding]:
    """The last unconditional binding and those after it; all if there is none."""
    last = next((n for n in range(len(bindings) - 1, -1, -1) if not bindings[n].conditional), 0)
    return bindings[last:]
