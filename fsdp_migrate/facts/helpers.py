"""Private functions and methods: they run on no other releases than those that get to where they are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.facts.scopes import Kind, Scope

if TYPE_CHECKING:
    from fsdp_migrate.facts.elsewhere import Elsewhere, Use
    from fsdp_migrate.facts.flags import ScopedNames
    from fsdp_migrate.facts.gates import Gates

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators that give the function to nobody but who asks for it by its name.
_KEEPING = frozenset(
    """
    staticmethod classmethod property cached_property cache lru_cache contextmanager asynccontextmanager wraps override
    overload final no_grad inference_mode enable_grad skipif skipIf skipUnless RunIf
    """.split()
)
_PLAIN_BASES = frozenset({"builtins.object", "abc.ABC"})
# Helpers that helpers of helpers use are followed so far.
_MAX_DEPTH = 20


class Helpers:
    """The functions of one module that nobody outside can know of, by what uses them."""

    def __init__(self, names: ScopedNames, gates: Gates) -> None:
        self.names = names
        self.gates = gates
        self.structure = names.structure
        self._known: dict[Function, int] = {}
        self._depth = 0

    def reach(self, function: Function) -> int:
        """The releases that get to a use of a private function, as bits; all of them where there may be others."""
        if function not in self._known:
            self._known[function] = self.gates.everywhere  # for functions that use one another
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                self._known[function] = self._find(function)
                self._depth -= 1
        return self._known[function]

    def _find(self, function: Function) -> int:
        home = self.structure.scope(function)
        if not self._is_private(function, home):
            return self.gates.everywhere
        found = 0
        for use in self._uses(function, home):
            found |= self.gates.mask(use)
            if found == self.gates.everywhere:
                return found
        # What nothing here gets to is used in a way that is not seen.
        return found | self._beyond(function, home) if found else self.gates.everywhere

    def _is_private(self, function: Function, home: Scope) -> bool:
        name = function.name
        if any(_last_name(decorator) not in _KEEPING for decorator in function.decorator_list):
            return False
        if name in home.declared_global or name in home.declared_nonlocal:
            return False
        if home.is_function:
            return True
        if not name.startswith("_") or name.endswith("__"):
            return False
        return home.is_module or (isinstance(home.node, ast.ClassDef) and self._is_closed(home.node, set()))

    def _is_closed(self, cls: ast.ClassDef, seen: set[ast.ClassDef]) -> bool:
        """Whether all that a class inherits is in this file, so that nothing else calls its private methods."""
        if cls in seen:
            return False
        seen.add(cls)
        meanings = [self.names.meanings(base) for base in cls.bases]
        for meaning in (meaning for found in meanings for meaning in found):
            binding = meaning.binding
            own = binding is not None and binding.kind is Kind.DEFINITION and isinstance(binding.node, ast.ClassDef)
            if own and not self._is_closed(binding.node, seen):  # type: ignore[union-attr, arg-type]
                return False
            if not own and meaning.qualified not in _PLAIN_BASES:
                return False
        return all(meanings) and not cls.keywords

    def _uses(self, function: Function, home: Scope) -> Iterator[ast.AST]:
        """Where this module takes the function by its name or writes the name as a string, itself left out."""
        name = function.name
        found: list[ast.AST] = [
            use for scope in home.users.get(name, ()) if scope.lookup(name) is home for use in scope.uses[name]
        ]
        if not home.is_function:
            found += self._strings.get(name, ())
        if home.is_class:
            found += self._attributes.get(name, ())
        return (use for use in found if not self._is_inside(use, function))

    def _is_inside(self, node: ast.AST, function: Function) -> bool:
        current: ast.AST | None = node
        while current is not None and current is not function:
            current = self.gates.parents.get(current)
        return current is function

    def _beyond(self, function: Function, home: Scope) -> int:
        """The releases on which other modules of the project use the function."""
        elsewhere: Elsewhere | None = self.names.elsewhere
        if home.is_function or elsewhere is None:
            return 0
        if home.is_class:
            return self.gates.everywhere if elsewhere.is_written(function.name) else 0
        uses = elsewhere.uses(function.name)
        found = self.gates.everywhere if uses is None else 0
        for use in uses or ():
            found |= self._translated(use)
        return found

    def _translated(self, use: Use) -> int:
        """The releases that get to a place in another module, as bits of this one."""
        foreign = use.facts.gates
        mask = foreign.mask(use.node)
        bits = self.gates.bits
        return sum(bits[release] for release in bits if mask & foreign.bits.get(release, mask))

    @cached_property
    def _strings(self) -> Mapping[str, list[ast.Constant]]:
        found: dict[str, list[ast.Constant]] = {}
        for constant in self.structure.strings:
            if isinstance(constant.value, str):
                found.setdefault(constant.value, []).append(constant)
        return found

    @cached_property
    def _attributes(self) -> Mapping[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.structure.attributes:
            found.setdefault(node.attr, []).append(node)
        return found


def _last_name(decorator: ast.expr) -> str | None:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = getattr(target, "attr", getattr(target, "id", None))
    return name if isinstance(name, str) else None
