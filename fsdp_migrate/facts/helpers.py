"""Private functions and methods: they run on no other releases than those that get to where they are used."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.facts.spelled import Spelled

if TYPE_CHECKING:
    from fsdp_migrate.facts.elsewhere import Elsewhere
    from fsdp_migrate.facts.flags import ScopedNames
    from fsdp_migrate.facts.gates import Gates
    from fsdp_migrate.facts.names import Meaning

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
        self._spelled = Spelled(names.structure)
        self._known: dict[Function, int] = {}
        self._called: dict[Function, int] = {}
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

    def called(self, function: Function) -> int:
        """The releases that get to a place of this module that takes the function by its name."""
        if function not in self._called:
            self._called[function] = self.gates.everywhere  # for functions that use one another
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                uses = self._uses(function, self.structure.scope(function))
                masks = [self.gates.mask(use) for use in uses if not self._is_of_module(use)]
                self._called[function] = functools.reduce(operator.or_, masks, 0)
                self._depth -= 1
        return self._called[function]

    def _is_of_module(self, node: ast.AST) -> bool:
        """Whether this is an attribute of what `import` brings, such as `subprocess.run`."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if root is node or not isinstance(root, ast.Name):
            return False
        scope = self.structure.scope(root).lookup(root.id)
        return scope is not None and all(isinstance(one.node, ast.Import) for one in scope.bindings[root.id])

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
            own = _own_class(meaning)
            if own is not None and not self._is_closed(own, seen):
                return False
            if own is None and meaning.qualified not in _PLAIN_BASES:
                return False
        return all(meanings) and not cls.keywords

    def family(self, cls: ast.ClassDef) -> list[ast.ClassDef]:
        """A class and the classes of this module that it inherits from."""
        found = [cls]
        for one in found:
            own = (_own_class(meaning) for base in one.bases for meaning in self.names.meanings(base))
            found += [base for base in own if base is not None and base not in found]
        return found

    def _uses(self, function: Function, home: Scope) -> Iterator[ast.AST]:
        """Where this module takes the function by its name or writes the name as a string, itself left out."""
        name = function.name
        found: list[ast.AST] = [
            use for scope in home.users.get(name, ()) if _may_read(scope, name, home) for use in scope.uses[name]
        ]
        if home.is_function:
            found += home.uses.get("locals", ())
        for known in () if home.is_function else {name, _mangled(name, home)}:
            found += self._strings.get(known, ())
            found += self._spelled.places(known)
            if home.is_class:
                found += self._attributes.get(known, ())
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
        if any(elsewhere.is_written(start + function.name + end) for start in "\"'.:" for end in "\"'"):
            return self.gates.everywhere
        uses = elsewhere.uses(function.name)
        found = self.gates.everywhere if uses is None else 0
        for use in (*(uses or ()), *elsewhere.may_use(function.name)):
            foreign = use.facts.gates
            found |= self.gates.translated(foreign, foreign.mask(use.node))
        return found

    @cached_property
    def _strings(self) -> Mapping[str, list[ast.Constant]]:
        found: dict[str, list[ast.Constant]] = {}
        for constant in self.structure.strings:
            if isinstance(constant.value, str):
                # `mylib.saving._save`, `mylib.saving:_save`
                last = constant.value.replace(":", ".").rpartition(".")[2]
                found.setdefault(last, []).append(constant)
        return found

    @cached_property
    def _attributes(self) -> Mapping[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.structure.attributes:
            found.setdefault(node.attr, []).append(node)
        return found


def _own_class(meaning: Meaning) -> ast.ClassDef | None:
    """The class of this module that something means."""
    node = None if meaning.binding is None else meaning.binding.node
    return node if isinstance(node, ast.ClassDef) else None


def _may_read(scope: Scope, name: str, home: Scope) -> bool:
    """Whether a name that is read in a scope may be that of its home."""
    if scope.is_class and scope is not home and scope.parent is not None and scope.parent.lookup(name) is home:
        return True  # before the class binds it
    return scope.lookup(name) is home


def _mangled(name: str, home: Scope) -> str:
    """What a method is called outside its class."""
    if not name.startswith("__") or not isinstance(home.node, ast.ClassDef):
        return name
    return f"_{home.node.name.lstrip('_')}{name}"


def _last_name(decorator: ast.expr) -> str | None:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = getattr(target, "attr", getattr(target, "id", None))
    return name if isinstance(name, str) else None
