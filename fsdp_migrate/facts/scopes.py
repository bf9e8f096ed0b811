"""The scopes of a module: what each name is bound to, where it is used, and what encloses what.

One walk of the tree gives all of it. Scoping follows the language reference: class bodies are not seen from the
functions inside them, decorators, defaults and annotations belong to the enclosing scope, a comprehension's first
iterable too, and a walrus binds in the function around its comprehension.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# `except*` came with Python 3.11.
TRIES: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
_CONDITIONAL: frozenset[type[ast.AST]] = frozenset(
    {ast.If, *TRIES, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match}
)


class Kind(Enum):
    """How a name came to be bound."""

    IMPORT = "import"
    ASSIGNMENT = "assignment"
    PARAMETER = "parameter"
    DEFINITION = "definition"
    OTHER = "other"


@dataclass(eq=False)
class Binding:
    """One place that binds a name.

    `target` is the dotted name that an import brings; `value` the expression of a plain `name = value`; `node` the
    statement, parameter or definition itself.
    """

    name: str
    kind: Kind
    node: ast.AST
    scope: Scope
    target: str | None = None
    value: ast.expr | None = None
    conditional: bool = False

    @property
    def position(self) -> tuple[int, int]:
        """Line and column where the binding stands, for ordering."""
        return (getattr(self.node, "lineno", 0), getattr(self.node, "col_offset", 0))


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension with the names it binds and the names it uses."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    uses: dict[str, list[ast.Name]] = field(default_factory=dict)
    children: list[Scope] = field(default_factory=list)
    declared_global: set[str] = field(default_factory=set)
    declared_nonlocal: set[str] = field(default_factory=set)
    star_imports: list[str] = field(default_factory=list)

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
        """This scope, then the ones around it, outwards."""
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
        """This scope and those inside it by the names that each uses, in the order of `nested`."""
        found: dict[str, list[Scope]] = {}
        for scope in self.nested():
            for name in scope.uses:
                found.setdefault(name, []).append(scope)
        return found

    def lookup(self, name: str) -> Scope | None:
        """The scope whose binding of `name` is seen from here, None for builtins and unbound names."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.declared_global:
                return scope.module if name in scope.module.bindings else None
            if name in scope.bindings and name not in scope.declared_nonlocal and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


@dataclass
class Structure:
    """What one walk over a module collects."""

    tree: ast.Module
    module: Scope
    parents: Mapping[ast.AST, ast.AST]
    scopes: Mapping[ast.AST, Scope]
    calls: list[ast.Call]
    attributes: list[ast.Attribute]
    subscripts: list[ast.Subscript]
    strings: list[ast.Constant]
    imports: list[ast.Import | ast.ImportFrom]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    choices: list[ast.If]
    yields: list[ast.Yield | ast.YieldFrom]

    @cached_property
    def stores(self) -> list[ast.Attribute]:
        """The attributes that are assigned or deleted."""
        return [node for node in self.attributes if type(node.ctx) is not ast.Load]

    @cached_property
    def method_calls(self) -> Mapping[str, list[ast.Call]]:
        """The calls of attributes, by the attribute's name."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            if isinstance(call.func, ast.Attribute):
                found.setdefault(call.func.attr, []).append(call)
        return found


def build(tree: ast.Module) -> Structure:
    """Walk `tree` once and collect its scopes, parents and the nodes that rules ask for, in source order.

    Contexts and operators are not walked to: they have no place, and there is one object of each kind for all.
    """
    return _Walk(tree).run()


_BY_PLACE = operator.attrgetter("lineno", "col_offset")
# Fields that hold no node.
_BARE = frozenset(
    "ctx op ops id attr arg name asname module level kind n s str conversion simple is_async type_comment type_ignores "
    "kwd_attrs rest tag".split()
)
_LEAVES = frozenset({ast.Constant, ast.Name, ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue})


def _find_child_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that hold other nodes, the last one first."""
    if kind in _LEAVES or kind is ast.MatchSingleton:
        return ()
    # The name of a type alias is a node.
    return tuple(name for name in reversed(kind._fields) if name not in _BARE or kind.__name__ == "TypeAlias")


class _Plan(NamedTuple):
    """What a walk does at nodes of one kind."""

    found: list[ast.AST] | None
    bind: _Step | None
    enter: _Step | None
    fields: tuple[str, ...]
    conditional: bool


class _Walk:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.module = Scope(tree, None)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {tree: self.module}
        self.found: dict[type[ast.AST], list[ast.AST]] = {kind: [] for kind in _COLLECTED}
        self.plans: dict[type[ast.AST], _Plan] = {}
        self.pending: list[tuple[ast.AST, Scope, bool]] = [(tree, self.module, False)]

    def run(self) -> Structure:
        self._walk()
        return Structure(
            tree=self.tree,
            module=self.module,
            parents=self.parents,
            scopes=self.scopes,
            calls=self._nodes(ast.Call),
            attributes=self._nodes(ast.Attribute),
            subscripts=self._nodes(ast.Subscript),
            strings=self._nodes(ast.Constant),
            imports=self._nodes(ast.Import, ast.ImportFrom),
            functions=self._nodes(ast.FunctionDef, ast.AsyncFunctionDef),
            choices=self._nodes(ast.If),
            yields=self._nodes(ast.Yield, ast.YieldFrom),
        )

    def _walk(self) -> None:
        pending, parents, scopes, plans = self.pending, self.parents, self.scopes, self.plans
        push, pop = pending.append, pending.pop
        while pending:
            node, scope, conditional = pop()
            scopes[node] = scope
            kind = type(node)
            if kind is ast.Name and type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
                name = node.id  # type: ignore[attr-defined]
                if name in scope.uses:
                    scope.uses[name].append(node)  # type: ignore[arg-type]
                else:
                    scope.uses[name] = [node]  # type: ignore[list-item]
                continue
            plan = plans.get(kind)
            found, bind, enter, fields, may_skip = self._plan(kind) if plan is None else plan
            if found is not None:
                found.append(node)
            if bind is not None:
                bind(self, node, scope, conditional)
            if enter is not None:
                enter(self, node, scope, conditional)
                continue
            conditional = conditional or may_skip
            for name in fields:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for child in reversed(value):
                        if child is not None:
                            parents[child] = node
                            push((child, scope, conditional))
                elif value is not None:
                    parents[value] = node
                    push((value, scope, conditional))

    def _plan(self, kind: type[ast.AST]) -> _Plan:
        plan = self.plans[kind] = _Plan(
            self.found.get(kind),
            _BINDERS.get(kind),
            _ENTRIES.get(kind),
            _find_child_fields(kind),
            kind in _CONDITIONAL,
        )
        return plan

    def _nodes(self, *types: type[ast.AST]) -> list:  # type: ignore[type-arg]
        return sorted((node for kind in types for node in self.found[kind]), key=_BY_PLACE)

    def _push(self, parent: ast.AST, node: ast.AST | None, scope: Scope, conditional: bool) -> None:
        if node is not None:
            self.parents[node] = parent
            self.pending.append((node, scope, conditional))

    def _enter_class(self, node: ast.ClassDef, scope: Scope, conditional: bool) -> None:
        inner = self._scope(node, scope)
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            self._push(node, child, scope, conditional)
        for statement in reversed(node.body):
            self._push(node, statement, inner, False)

    def _scope(self, node: ast.AST, parent: Scope) -> Scope:
        scope = Scope(node, parent)
        parent.children.append(scope)
        return scope

    def _enter_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope, conditional: bool
    ) -> None:
        inner = self._scope(node, scope)
        arguments = node.args
        self.parents[arguments] = node
        self.scopes[arguments] = scope
        everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        everyone += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        for argument in everyone:
            self.parents[argument] = arguments
            self.scopes[argument] = inner
            self._add(Binding(argument.arg, Kind.PARAMETER, argument, inner))
            self._push(argument, argument.annotation, scope, conditional)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            self._push(arguments, default, scope, conditional)
        if isinstance(node, ast.Lambda):
            self._push(node, node.body, inner, False)
            return
        for child in (*node.decorator_list, node.returns, *getattr(node, "type_params", ())):
            self._push(node, child, scope, conditional)
        for statement in reversed(node.body):
            self._push(node, statement, inner, False)

    def _enter_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope, conditional: bool
    ) -> None:
        inner = self._scope(node, scope)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for element in elements:
            self._push(node, element, inner, True)
        for number, generator in enumerate(node.generators):
            self.parents[generator] = node
            self.scopes[generator] = inner
            self._push(generator, generator.target, inner, True)
            self._push(generator, generator.iter, inner if number else scope, True)
            for condition in generator.ifs:
                self._push(generator, condition, inner, True)

    def _add(self, binding: Binding) -> None:
        scope = binding.scope
        if binding.name in scope.declared_global:
            scope, binding.conditional = scope.module, True  # only once the function has run
        elif binding.name in scope.declared_nonlocal:
            scope = next((s for s in scope.enclosing() if s is not scope and binding.name in s.bindings), scope)
        scope.bindings.setdefault(binding.name, []).append(binding)

    def _bind_name_or_use(self, node: ast.Name, scope: Scope, conditional: bool) -> None:
        if isinstance(node.ctx, ast.Load):
            uses = scope.uses.get(node.id)
            if uses is None:
                scope.uses[node.id] = [node]
            else:
                uses.append(node)
        else:
            self._bind_name(node, scope, conditional)

    def _bind_modules(self, node: ast.Import, scope: Scope, conditional: bool) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            target = alias.name if alias.asname else name
            self._add(Binding(name, Kind.IMPORT, node, scope, target=target, conditional=conditional))

    def _bind_imported(self, node: ast.ImportFrom, scope: Scope, conditional: bool) -> None:
        module = "." * node.level + (node.module or "")
        prefix = module if module.endswith(".") else f"{module}."
        for alias in node.names:
            if alias.name == "*":
                scope.star_imports.append(module)
                continue
            target = prefix + alias.name
            name = alias.asname or alias.name
            self._add(Binding(name, Kind.IMPORT, node, scope, target=target, conditional=conditional))

    def _bind_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope, conditional: bool
    ) -> None:
        self._add(Binding(node.name, Kind.DEFINITION, node, scope, conditional=conditional))

    def _declare_global(self, node: ast.Global, scope: Scope, conditional: bool) -> None:
        scope.declared_global.update(node.names)

    def _declare_nonlocal(self, node: ast.Nonlocal, scope: Scope, conditional: bool) -> None:
        scope.declared_nonlocal.update(node.names)

    def _bind_other(
        self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping, scope: Scope, conditional: bool
    ) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            self._add(Binding(name, Kind.OTHER, node, scope, conditional=conditional))

    def _bind_name(self, node: ast.Name, scope: Scope, conditional: bool) -> None:
        parent = self.parents[node]
        value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
        if isinstance(parent, ast.NamedExpr):
            while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
                scope = scope.parent
        elif value is None:
            value = _unpacked_value(node, parent, self.parents)
        kind = Kind.OTHER if value is None else Kind.ASSIGNMENT
        bare = isinstance(parent, ast.AnnAssign) and parent.value is None
        if not bare:
            self._add(Binding(node.id, kind, node, scope, value=value, conditional=conditional))
        elif isinstance(parent, ast.AnnAssign) and not scope.is_module:
            scope.bindings.setdefault(node.id, [])


def _unpacked_value(node: ast.Name, parent: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr | None:
    """The element that `node` receives in `a, b = x, y`, None for any other unpacking."""
    if not isinstance(parent, (ast.Tuple, ast.List)):
        return None
    statement = parents[parent]
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, (ast.Tuple, ast.List)):
        return None
    elements = statement.value.elts
    if len(elements) != len(parent.elts) or any(isinstance(e, ast.Starred) for e in (*elements, *parent.elts)):
        return None
    return elements[parent.elts.index(node)]


_Step = Callable[[_Walk, Any, Scope, bool], None]
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
_BINDERS: dict[type[ast.AST], _Step] = {
    ast.Name: _Walk._bind_name_or_use,
    ast.Import: _Walk._bind_modules,
    ast.ImportFrom: _Walk._bind_imported,
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _Walk._bind_definition),
    ast.Global: _Walk._declare_global,
    ast.Nonlocal: _Walk._declare_nonlocal,
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Walk._bind_other),
}
_ENTRIES: dict[type[ast.AST], _Step] = {
    **dict.fromkeys(FunctionNode, _Walk._enter_function),
    ast.ClassDef: _Walk._enter_class,
    **dict.fromkeys(_COMPREHENSIONS, _Walk._enter_comprehension),
}
