"""The classes that an object may have, as far as its file shows."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from fsdp_migrate.facts.annotations import options, texts
from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.scopes import Binding, Kind


class ObjectClasses:
    """The classes of names and attributes of one module, by annotations and constructions."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.structure = names.structure
        self._places: dict[ast.expr, int] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._quoted: dict[ast.Constant, list[ast.expr]] = {}

    def classes(self, node: ast.expr) -> Iterator[ast.expr]:
        """The class expressions that a name or attribute is built from or annotated with."""
        for found in self._each(node):
            yield from found

    def all_classes(self, node: ast.expr) -> list[ast.expr]:
        """The same if every binding of the name or attribute in this file shows a class, otherwise none."""
        each = self._each(node)
        return [cls for found in each for cls in found] if all(each) else []

    def _each(self, node: ast.expr) -> list[list[ast.expr]]:
        """The classes by the bindings of the name or attribute."""
        if isinstance(node, ast.Name):
            return [list(self.of_binding(binding)) for binding in self.names.bindings(node)]
        known = self._attributes.get(node.attr) if isinstance(node, ast.Attribute) else None
        return known.get(self._place(node), []) if known else []

    def of_binding(self, binding: Binding) -> Iterator[ast.expr]:
        """The classes that one binding of a name shows."""
        if binding.kind is Kind.PARAMETER:
            assert isinstance(binding.node, ast.arg)
            yield from self._allowed(binding.node.annotation)
            return
        if isinstance(binding.value, ast.Call):
            yield binding.value.func
        parent = self.structure.parents.get(binding.node)
        if isinstance(parent, ast.AnnAssign):
            yield from self._allowed(parent.annotation)

    def _allowed(self, annotation: ast.expr | None) -> Iterator[ast.expr]:
        """The classes in an annotation, quoted or not."""
        for option in () if annotation is None else options(annotation):
            if isinstance(option, ast.Constant) and isinstance(option.value, str):
                yield from self._unquoted(option, option.value)
            else:
                yield option

    def _unquoted(self, constant: ast.Constant, text: str) -> list[ast.expr]:
        """What a quoted annotation allows, as if it stood there without quotes."""
        if constant not in self._quoted:
            found = self._quoted[constant] = [ast.parse(option, mode="eval").body for option in texts(text)]
            for option in found:
                self.structure.parents[option] = constant
                for node in ast.walk(option):
                    self.structure.parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
        return self._quoted[constant]

    @cached_property
    def _attributes(self) -> dict[str, dict[int, list[list[ast.expr]]]]:
        """The values that attributes such as `self.model` get in this file, by their last name and place."""
        found: dict[str, dict[int, list[list[ast.expr]]]] = {}
        for store in self.structure.stores:
            if isinstance(store.ctx, ast.Store):
                statement = self.structure.parents.get(store)
                value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
                built = [value.func] if isinstance(value, ast.Call) else []
                if isinstance(statement, ast.AnnAssign):
                    built += self._allowed(statement.annotation)
                found.setdefault(store.attr, {}).setdefault(self._place(store), []).append(built)
        for name, annotation in self._declared():
            place = self._number(self._number(-1, "self"), name)
            found.setdefault(name, {}).setdefault(place, []).append(list(self._allowed(annotation)))
        return found

    def _declared(self) -> Iterator[tuple[str, ast.expr]]:
        """The attributes of `self` that the bodies of classes annotate."""
        for scope in self.structure.module.nested():
            for statement in scope.node.body if isinstance(scope.node, ast.ClassDef) else ():
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id, statement.annotation

    def _place(self, node: ast.expr) -> int:
        """A number for an expression; equal texts have the same. Each link of a chain is seen once."""
        links = []
        while isinstance(node, ast.Attribute) and node not in self._places:
            links.append(node)
            node = node.value
        if node not in self._places:
            self._places[node] = self._number(-1, ast.unparse(node))
        for link in reversed(links):
            self._places[link] = self._number(self._places[link.value], link.attr)
        return self._places[links[0] if links else node]

    def _number(self, owner: int, text: str) -> int:
        return self._numbers.setdefault((owner, text), len(self._numbers))


def instance_of_class(node: ast.expr) -> ast.expr | None:
    """`x` of `type(x)` and `x.__class__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__class__":
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "type"
        and len(node.args) == 1
    ):
        return node.args[0]
    return None


def is_super(node: ast.expr) -> bool:
    """Whether `node` is a call of `super`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def all_members(cls: ast.ClassDef, names: Names) -> frozenset[str]:
    """The members of a class, with those of its bases in the project: methods and attributes."""
    found, waiting = set[str](), [cls]
    seen: set[ast.ClassDef] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        found.update(members(current))
        for meaning in (meaning for base in current.bases for meaning in names.meanings(base)):
            if meaning.binding is not None and isinstance(meaning.binding.node, ast.ClassDef):
                waiting.append(meaning.binding.node)
            elif meaning.qualified is not None and names.project is not None:
                found.update(names.project.members(meaning.qualified))
    return frozenset(found)


def members_behind(names: Names, bindings: Iterable[Binding]) -> frozenset[str]:
    """The members of the classes that a name is bound to, also through imports."""
    found = set[str]()
    for binding in bindings:
        if isinstance(binding.node, ast.ClassDef):
            found.update(all_members(binding.node, names))
        elif binding.target is not None and names.project is not None:
            found.update(names.project.members(binding.target))
    return frozenset(found)


def members(cls: ast.ClassDef) -> Iterator[str]:
    """The names that a class body binds, and the attributes of `self` that its methods assign."""
    waiting: list[ast.AST] = [*cls.body]
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement.name
            stores = (node for node in ast.walk(statement) if isinstance(node, ast.Attribute))
            yield from (node.attr for node in stores if isinstance(node.ctx, ast.Store) and _is_self(node.value))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and not _is_load(node))
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in statement.names)
        elif not isinstance(statement, (ast.ClassDef, ast.expr)):
            waiting += ast.iter_child_nodes(statement)  # blocks that a condition or a handler decides on


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)
