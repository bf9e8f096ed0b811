"""Follows names with several bindings, and functions with several returns, per torch release."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property

from packaging.version import Version

from fsdp_migrate.facts.releases.evaluator import is_plain, is_undecorated
from fsdp_migrate.facts.releases.reach import BoundValue, Reach, Resolver, ScopedResolver
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.torch_api import data

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
# What the blocks of compound statements are made of.
_BLOCK_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# Nodes whose parts may not run, or run more than once.
_MAY_SKIP = (ast.For, ast.AsyncFor, ast.While, ast.Match, ast.IfExp, ast.BoolOp, ast.comprehension)

_CHANGING = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse")


class Flags:
    """The values of a module's names and functions, given the releases that reach its nodes."""

    def __init__(self, names: Resolver, gates: Reach) -> None:
        self.names = names if isinstance(names, ScopedResolver) else None
        self.gates = gates
        self._plain: dict[ast.FunctionDef, bool] = {}

    def in_force(self, node: ast.Name, release: Version) -> tuple[Sequence[BoundValue], bool]:
        """All values that a name may have on `release`, and whether they depend on the release.

        None at all if a binding is not understood. The last binding that surely runs on the release hides those before
        it.
        """
        return self.bound_to(self.names.bindings(node) if self.names is not None else (), release)

    def bound_to(self, bindings: Sequence[Binding], release: Version) -> tuple[Sequence[BoundValue], bool]:
        """The same for a name with these bindings."""
        # A function may bind a global at any time, or never.
        ordered = len({binding.scope for binding in bindings}) == 1
        gated = any(self._is_gated(binding) for binding in bindings)
        found: list[BoundValue] = []
        for binding in reversed(bindings):
            if not self._reached(binding.node, release):
                continue
            bound = self._bound_value(binding)
            if bound is None:
                return (), gated
            if bound.target is not None and data.exists(bound.target, release) is False:
                continue
            found.append(bound)
            if ordered and self.surely(binding.node, release):
                break
        return found, gated

    def is_set(self, node: ast.Attribute, qualified: str) -> bool:
        """Whether the file assigns the attribute that `node` reads, by its full name."""
        return self.names is not None and any(
            self.names.qualified(target) == qualified for target in self._set_attributes.get(node.attr, ())
        )

    def is_changed(self, node: ast.Name) -> bool:
        """Whether the file changes the list in a name: an item, or by a method."""
        return self.names is not None and node.id in self._changed_lists

    @cached_property
    def _changed_lists(self) -> frozenset[str]:
        if self.names is None:
            return frozenset()
        structure = self.names.structure
        items = [item.value for item in structure.subscripts if not isinstance(item.ctx, ast.Load)]
        calls = [call for name in _CHANGING for call in structure.method_calls.get(name, ())]
        owners = [*items, *(call.func.value for call in calls if isinstance(call.func, ast.Attribute))]
        return frozenset(owner.id for owner in owners if isinstance(owner, ast.Name))

    @cached_property
    def _set_attributes(self) -> Mapping[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.names.structure.stores if self.names is not None else ():
            found.setdefault(node.attr, []).append(node)
        return found

    def is_plain(self, function: ast.FunctionDef) -> bool:
        """Whether a call runs the body of a function and returns its result."""
        if function not in self._plain:
            generators = self._generators
            known = generators is not None and is_undecorated(function) and function not in generators
            self._plain[function] = known or (generators is None and is_plain(function))
        return self._plain[function]

    @cached_property
    def _generators(self) -> frozenset[ast.AST] | None:
        """The functions around a `yield`; None if they are not known."""
        if self.names is None:
            return None
        found: set[ast.AST] = set()
        for start in self.names.structure.yields:
            node: ast.AST = start
            while node in self.gates.parents and node not in found:
                found.add(node)
                node = self.gates.parents[node]
        return frozenset(found)

    def _reached(self, node: ast.AST, release: Version) -> bool:
        return bool(self.gates.mask(node) & self.gates.bits[release])

    def _is_gated(self, binding: Binding) -> bool:
        """Whether some release does not run the binding, or fails in it."""
        if self.gates.mask(binding.node) != self.gates.everywhere:
            return True
        target = binding.target
        return target is not None and any(data.exists(target, release) is False for release in self.gates.bits)

    def _bound_value(self, binding: Binding) -> BoundValue | None:
        if binding.value is not None:
            return BoundValue(value=binding.value)
        if binding.kind is Kind.IMPORT:
            return BoundValue(target=binding.target)
        target = self.gates.parents.get(binding.node)
        if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(binding.node, ast.Name):
            return None
        assignment = self.gates.parents.get(target)
        if not isinstance(assignment, ast.Assign) or any(isinstance(e, ast.Starred) for e in target.elts):
            return None
        return BoundValue(value=assignment.value, index=target.elts.index(binding.node))

    def surely(self, node: ast.AST, release: Version) -> bool:
        """Whether control surely reaches `node` once its function, class or module runs."""
        child = node
        while (parent := self.gates.parents.get(child)) is not None:
            if isinstance(parent, _MAY_SKIP):
                return False
            if isinstance(parent, ast.If) and child is not parent.test:
                true, false = self.gates.sides(parent.test)
                if self.gates.bits[release] & (false if child in parent.body else true):
                    return False
            elif isinstance(parent, ast.Try):
                if not self.gates.attempt(parent).surely(child, release):
                    return False
            elif isinstance(parent, _SCOPES):
                return True
            child = parent
        return True
