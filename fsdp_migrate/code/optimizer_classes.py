"""The class of an object, as far as the project shows it, and whether that is an optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.annotations import options, texts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.class_members import all_members
from fsdp_migrate.facts.scopes import Binding, Kind

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# What torch asks an optimizer for, or what hands that on.
_OF_OPTIMIZERS = {"param_groups", "__getattr__"}
_PLAIN_BASES = ("builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol")


def no_optimizer(facts: ModuleFacts, node: ast.expr) -> str | None:
    """The class of `node` if the project shows that it is not an optimizer, None otherwise."""
    shown = (ast.unparse(cls).strip("'") for there, cls in _Objects().classes(facts, node) if _is_none(there, cls))
    return next(shown, None)


def classes_of(
    facts: ModuleFacts, node: ast.expr, asked: frozenset[ast.expr] = frozenset()
) -> Iterator[tuple[ModuleFacts, ast.ClassDef]]:
    """The classes of the project that an object may be of, each with the facts of its module; see `_Objects`."""
    for there, cls in _Objects(asked).classes(facts, node):
        yield from ((where, one) for where, one in _definitions(there, cls) if isinstance(one, ast.ClassDef))


def _is_none(facts: ModuleFacts, cls: ast.expr, *, as_base: bool = False) -> bool:
    """Whether a class is known and derives from no optimizer."""
    known = list(_definitions(facts, cls))
    if known:
        return any(
            isinstance(one, ast.ClassDef)
            and not _OF_OPTIMIZERS & all_members(one, there.names)
            and all(_is_none(there, base, as_base=True) for base in one.bases)
            for there, one in known
        )
    qualified = facts.names.qualified(cls.value if isinstance(cls, ast.Subscript) else cls) or ""
    of_torch = qualified.startswith("torch.") and qualified.rpartition(".")[2][:1].isupper()
    is_other = of_torch and (".optim" not in qualified or ".lr_scheduler." in qualified)
    return is_other or (as_base and qualified in _PLAIN_BASES)


def _definitions(facts: ModuleFacts, node: ast.expr) -> Iterator[tuple[ModuleFacts, Definition]]:
    """The classes and functions of the project that `node` stands for, each with the facts of its module."""
    bindings = (
        facts.names.exported(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
    )
    meanings = [one for binding in bindings for one in facts.names.meanings_of(binding)]
    for meaning in meanings or facts.names.meanings(node):
        if meaning.binding is not None and isinstance(meaning.binding.node, Definition):
            yield facts, meaning.binding.node
        elif meaning.qualified is not None and facts.project is not None:
            found = facts.project.definition(meaning.qualified)
            if found is not None:
                yield from ((found[0], one.node) for one in found[1] if isinstance(one.node, Definition))


def _calls(facts: ModuleFacts, definition: Definition) -> Iterator[tuple[ModuleFacts, ast.Call]]:
    """The visible calls of a top-level function or class in its project."""
    module, project = facts.structure.module, facts.project
    scopes = [one for one in module.users.get(definition.name, ()) if one.lookup(definition.name) is module]
    uses: list[tuple[ModuleFacts, ast.AST]] = [(facts, use) for one in scopes for use in one.uses[definition.name]]
    if project is not None:
        uses += [(use.facts, use.node) for use in project.uses(definition.name) or ()]
    for there, use in uses:
        parent = there.structure.parents[use]
        if isinstance(parent, ast.Call) and parent.func is use:
            yield there, parent


class _Objects:
    """Follows an object to the classes in its annotations and constructions. Each place is looked at once.

    `asked` are the owners of attributes whose classes are asked for on the way.
    """

    def __init__(self, asked: frozenset[ast.expr] = frozenset()) -> None:
        self.seen: set[ast.AST] = set()
        self.asked = asked

    def classes(self, facts: ModuleFacts, node: ast.expr | None) -> Iterator[tuple[ModuleFacts, ast.expr]]:
        """The expressions of the classes, each with the facts of its module."""
        if node is None or node in self.seen:
            return
        self.seen.add(node)
        if isinstance(node, ast.Call):
            yield from self._called(facts, node)
        elif isinstance(node, ast.Name):
            for binding in facts.names.bindings(node):
                yield from self._bound(facts, binding)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(facts, node)
        elif isinstance(node, (ast.IfExp, ast.BoolOp)):
            for value in node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse):
                yield from self.classes(facts, value)

    def _bound(self, facts: ModuleFacts, binding: Binding) -> Iterator[tuple[ModuleFacts, ast.expr]]:
        parent = facts.structure.parents.get(binding.node)
        if isinstance(parent, ast.AnnAssign):
            yield from _annotated(facts, parent.annotation)
        if binding.kind is not Kind.PARAMETER:
            yield from self.classes(facts, binding.value)
        elif isinstance(binding.node, ast.arg) and binding.node.annotation is not None:
            yield from _annotated(facts, binding.node.annotation)
        elif isinstance(binding.scope.node, _Function):
            yield from self._given(facts, binding.scope.node, binding.name)

    def _given(self, facts: ModuleFacts, function: _Function, name: str) -> Iterator[tuple[ModuleFacts, ast.expr]]:
        """The values that the visible callers of a function pass for a parameter."""
        cls = facts.structure.parents[function]
        names = [
            argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        ]
        called: Definition | None = function
        if isinstance(cls, ast.ClassDef):
            names = names[1:]
            called = cls if function.name == "__init__" else None
        if called is None:
            calls = [(facts, call) for call in facts.structure.method_calls.get(function.name, ())]
        else:
            calls = list(_calls(facts, called))
        for there, call in calls:
            try:
                given = bind(call, names, 0).get(name)
            except BindingError:
                continue
            yield from self.classes(there, given.value if given is not None else None)

    def _called(self, facts: ModuleFacts, call: ast.Call) -> Iterator[tuple[ModuleFacts, ast.expr]]:
        """The class of a call's result: the class that is called, or what the function declares or returns."""
        found = list(_definitions(facts, call.func))
        if isinstance(call.func, ast.Attribute) and not found:
            found = list(self._methods(facts, call.func))
        if not found or any(isinstance(one, ast.ClassDef) for _, one in found):
            yield facts, call.func
        for there, function in found:
            if not isinstance(function, _Function) or function in self.seen:
                continue
            self.seen.add(function)
            if function.returns is not None:
                yield from _annotated(there, function.returns)
            for part in ast.walk(function):
                if isinstance(part, ast.Return) and there.function(part) is function:
                    yield from self.classes(there, part.value)

    def _attribute(self, facts: ModuleFacts, node: ast.Attribute) -> Iterator[tuple[ModuleFacts, ast.expr]]:
        """The annotations and values of an attribute: in the classes of its owner, or under the same text."""
        named = (one for one in facts.structure.stores if one.attr == node.attr)
        stores = [(facts, one) for one in named if ast.unparse(one) == ast.unparse(node)]
        for there, cls in self._owners(facts, node.value):
            for part in ast.walk(cls):
                if (
                    isinstance(part, ast.AnnAssign)
                    and isinstance(part.target, ast.Name)
                    and part.target.id == node.attr
                ):
                    yield from _annotated(there, part.annotation)
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and part.attr == node.attr:
                    stores.append((there, part))
        for there, store in stores:
            statement = there.structure.parents[store]
            if isinstance(statement, ast.AnnAssign):
                yield from _annotated(there, statement.annotation)
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                yield from self.classes(there, statement.value)

    def _methods(self, facts: ModuleFacts, method: ast.Attribute) -> Iterator[tuple[ModuleFacts, _Function]]:
        for there, cls in self._owners(facts, method.value):
            yield from ((there, one) for one in cls.body if isinstance(one, _Function) and one.name == method.attr)

    def _owners(self, facts: ModuleFacts, node: ast.expr) -> Iterator[tuple[ModuleFacts, ast.ClassDef]]:
        """The classes of the project that an object may be of, with their bases."""
        around = facts.class_around(node)
        waiting: list[tuple[ModuleFacts, Definition]] = []
        if isinstance(node, ast.Name) and node.id in ("self", "cls") and around is not None:
            waiting.append((facts, around))
        elif node not in self.asked:
            waiting += classes_of(facts, node, self.asked | {node})
        seen: set[ast.AST] = set()
        while waiting:
            there, cls = waiting.pop()
            if isinstance(cls, ast.ClassDef) and cls not in seen:
                seen.add(cls)
                yield there, cls
                waiting += [one for base in cls.bases for one in _definitions(there, base)]


def _annotated(facts: ModuleFacts, annotation: ast.expr) -> Iterator[tuple[ModuleFacts, ast.expr]]:
    """The classes that an annotation names, quoted ones as constants."""
    for part in options(annotation):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from ((facts, ast.Constant(text)) for text in texts(part.value))
        else:
            yield facts, part
