"""One walk of a module's tree for its scopes, parents, and the nodes that rules ask for.

Scoping follows the language reference. Functions do not see the class body around them. Decorators, defaults and
annotations belong to the enclosing scope, and so does a comprehension's first iterable. A walrus binds in the function
around its comprehension.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fsdp_migrate.facts.scopes import TRIES, Binding, Kind, Scope, Structure
from fsdp_migrate.records import NamedTuple

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CONDITIONAL: frozenset[type[ast.AST]] = frozenset(
    {ast.If, *TRIES, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match}
)


def build(tree: ast.Module) -> Structure:
    """Walk `tree` once and collect its scopes, parents and the nodes that rules ask for, in source order.

    Contexts and operators are not walked to: they have no place, and there is one object of each kind for all.
    """
    return _Walk(tree).run()


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
    """How a walk handles nodes of one kind."""

    found: list[ast.AST] | None
    step: _Step | None
    fields: tuple[str, ...]


class _Walk:
    """A walk that continues in the innermost scope; each scope has its remaining nodes."""

    def __init__(self, tree: ast.Module) -> None:
        module = Scope(tree, None)
        self.structure = Structure(tree, module)
        self.parents, self.starts = self.structure.parents, self.structure.starts
        self.starts[tree] = module
        self.plans: dict[type[ast.AST], _Plan] = {}
        self.open: list[tuple[Scope, list[ast.AST]]] = [(module, [tree])]

    def run(self) -> Structure:
        while self.open:
            scope, pending = self.open[-1]
            if pending:
                self._go_on(scope, pending)
            else:
                self.open.pop()
        return self.structure

    def _go_on(self, scope: Scope, pending: list[ast.AST]) -> None:
        """Visit the remaining nodes of a scope, until another one begins."""
        parents, plans, uses = self.parents, self.plans, scope.uses
        push, pop, depth = pending.append, pending.pop, len(self.open)
        while pending:
            node = pop()
            kind = type(node)
            if kind is ast.Name and type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
                name = node.id  # type: ignore[attr-defined]
                if name in uses:
                    uses[name].append(node)  # type: ignore[arg-type]
                else:
                    uses[name] = [node]  # type: ignore[list-item]
                continue
            plan = plans.get(kind)
            found, step, fields = self._plan(kind) if plan is None else plan
            if found is not None:
                found.append(node)
            if step is not None:
                step(self, node, scope)
                if len(self.open) > depth:
                    return
            for name in fields:
                value = getattr(node, name, None)
                if not value:
                    continue
                if value.__class__ is list:
                    for child in reversed(value):
                        if child is not None:
                            parents[child] = node
                            push(child)
                else:
                    parents[value] = node
                    push(value)

    def _plan(self, kind: type[ast.AST]) -> _Plan:
        plan = self.plans[kind] = _Plan(self.structure.found.get(kind), _STEPS.get(kind), _find_child_fields(kind))
        return plan

    def _push(self, parent: ast.AST, *parts: ast.AST | None) -> None:
        """Add parts of a node in the node's scope."""
        for part in parts:
            if part is not None:
                self.parents[part] = parent
                self.open[-1][1].append(part)

    def _begin(self, node: ast.AST, scope: Scope, *parts: ast.AST | None) -> Scope:
        """Continue in the scope of a node, in which these parts of it are evaluated."""
        inner = Scope(node, scope)
        scope.children.append(inner)
        self.open.append((inner, []))
        for part in reversed(parts):
            if part is not None:
                self.starts[part] = inner
                self._push(node, part)
        return inner

    def _enter_class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._bind_definition(node, scope)
        self._push(node, *node.decorator_list, *node.bases, *node.keywords)
        self._begin(node, scope, *node.body)

    def _enter_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        self._bind_definition(node, scope)
        self._push_arguments(node, scope)
        self._push(node, *node.decorator_list, node.returns, *getattr(node, "type_params", ()))
        self._bind_parameters(self._begin(node, scope, *node.body), node.args)

    def _enter_lambda(self, node: ast.Lambda, scope: Scope) -> None:
        self._push_arguments(node, scope)
        self._bind_parameters(self._begin(node, scope, node.body), node.args)

    def _push_arguments(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        """Add the parts of a function's parameters that are evaluated outside of it."""
        arguments = node.args
        self.parents[arguments] = node
        for argument in _parameters(arguments):
            if argument.annotation is not None:
                self._push(argument, argument.annotation)
                self.starts[argument.annotation] = scope
        self._push(arguments, *arguments.defaults, *arguments.kw_defaults)

    def _bind_parameters(self, inner: Scope, arguments: ast.arguments) -> None:
        for argument in _parameters(arguments):
            self.parents[argument] = arguments
            self.starts[argument] = inner
            self._add(Binding(argument.arg, Kind.PARAMETER, argument, inner))

    def _enter_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope
    ) -> None:
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        first = node.generators[0]
        self._push(first, first.iter)
        self.starts[first.iter] = scope
        inner = self._begin(node, scope, *reversed(elements))
        for generator in node.generators:
            self.parents[generator] = node
            self.starts[generator] = inner
            self._push(generator, generator.target, generator.iter if generator is not first else None, *generator.ifs)

    def _is_conditional(self, node: ast.AST) -> bool:
        """Whether something around `node` in its scope may skip it."""
        starts, parents = self.starts, self.parents
        while node not in starts:
            node = parents[node]
            if type(node) in _CONDITIONAL:
                return True
        return isinstance(starts[node].node, _COMPREHENSIONS)

    def _add(self, binding: Binding) -> None:
        scope = binding.scope
        if binding.name in scope.declared_global:
            scope, binding.conditional = scope.module, True  # only once the function has run
        elif binding.name in scope.declared_nonlocal:
            outer = (other for other in scope.enclosing() if other is not scope and binding.name in other.bindings)
            scope, binding.conditional = next(outer, scope), True
        binding.scope = scope
        scope.bindings.setdefault(binding.name, []).append(binding)

    def _bind_modules(self, node: ast.Import, scope: Scope) -> None:
        conditional = self._is_conditional(node)
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            target = alias.name if alias.asname else name
            self._add(Binding(name, Kind.IMPORT, node, scope, target=target, conditional=conditional))

    def _bind_imported(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = "." * node.level + (node.module or "")
        prefix = module if module.endswith(".") else f"{module}."
        conditional = self._is_conditional(node)
        for alias in node.names:
            if alias.name == "*":
                scope.star_imports += (module,)
                continue
            target = prefix + alias.name
            name = alias.asname or alias.name
            self._add(Binding(name, Kind.IMPORT, node, scope, target=target, conditional=conditional))

    def _bind_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope) -> None:
        self._add(Binding(node.name, Kind.DEFINITION, node, scope, conditional=self._is_conditional(node)))

    def _declare_global(self, node: ast.Global, scope: Scope) -> None:
        scope.declared_global |= {*node.names}

    def _declare_nonlocal(self, node: ast.Nonlocal, scope: Scope) -> None:
        scope.declared_nonlocal |= {*node.names}

    def _bind_other(
        self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping, scope: Scope
    ) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            self._add(Binding(name, Kind.OTHER, node, scope, conditional=self._is_conditional(node)))

    def _bind_name(self, node: ast.Name, scope: Scope) -> None:
        parent = self.parents[node]
        value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
        if isinstance(parent, ast.NamedExpr):
            while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
                scope = scope.parent
        elif value is None:
            value = _unpacked_value(node, parent, self.parents)
        kind = Kind.OTHER if value is None else Kind.ASSIGNMENT
        if not isinstance(parent, ast.AnnAssign) or parent.value is not None:
            conditional = self._is_conditional(node)
            self._add(Binding(node.id, kind, node, scope, value=value, conditional=conditional))
        elif not scope.is_module:
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


def _parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)


_Step = Callable[[_Walk, Any, Scope], None]
_STEPS: dict[type[ast.AST], _Step] = {
    ast.Name: _Walk._bind_name,
    ast.Import: _Walk._bind_modules,
    ast.ImportFrom: _Walk._bind_imported,
    ast.Global: _Walk._declare_global,
    ast.Nonlocal: _Walk._declare_nonlocal,
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Walk._bind_other),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _Walk._enter_function),
    ast.Lambda: _Walk._enter_lambda,
    ast.ClassDef: _Walk._enter_class,
    **dict.fromkeys(_COMPREHENSIONS, _Walk._enter_comprehension),
}
