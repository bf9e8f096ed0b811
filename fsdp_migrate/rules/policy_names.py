"""Where a function names one of its parameters."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.rules.flat_classes import template_around
from fsdp_migrate.source import Span


def places_of(facts: ModuleFacts, scope: Scope, old: str, new: str) -> list[Span] | str:
    """Every place in a function that names its parameter `old`, or why they cannot all be called `new`."""
    nodes: list[ast.Name] = []
    for inner in scope.nested():
        if new in inner.uses or new in inner.bindings:
            return f"`{new}` is taken in it"
        if old in inner.declared_nonlocal or old in inner.declared_global:
            return f"a function inside it declares `{old}`"
        if inner.lookup(old) is scope:
            nodes += inner.uses.get(old, ())
    bound = [binding.node for binding in scope.bindings[old]]
    if any(not isinstance(node, (ast.Name, ast.arg)) for node in bound):
        return f"`{old}` is bound in it by more than assignments"
    nodes += [node for node in bound if isinstance(node, ast.Name)]
    if any(template_around(facts, node) is not None for node in nodes):
        return f"an f-string in it uses `{old}`"
    if any(_inside(facts, string, scope.node) for string in facts.structure.strings if string.value == old):
        return f"a string in it names `{old}`"
    return [facts.source.span(node) for node in nodes]


def _inside(facts: ModuleFacts, node: ast.AST, function: ast.AST) -> bool:
    while node in facts.structure.parents and node is not function:
        node = facts.structure.parents[node]
    return node is function
