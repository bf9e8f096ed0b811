"""Old names in code that chooses between the old and the new name without a version check."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import TRIES


def is_old_arm(facts: ModuleFacts, node: ast.AST, new: str) -> bool:
    """Whether another arm around `node`, or the condition between them, uses `new`."""
    return any(_mentions(part, new) for part in arms_beside(facts, node))


def arms_beside(facts: ModuleFacts, node: ast.AST) -> Iterator[ast.AST]:
    """The other arms of the choices around `node`, and the conditions between them."""
    child = node
    while child in facts.structure.parents:
        parent = facts.structure.parents[child]
        yield from _alternatives(parent, child)
        child = parent


def _alternatives(parent: ast.AST, child: ast.AST) -> Iterable[ast.AST]:
    """The condition of a choice and what is chosen if `child` is not."""
    if isinstance(parent, ast.IfExp) and child is not parent.test:
        return (parent.test, parent.orelse if child is parent.body else parent.body)
    if isinstance(parent, ast.If) and child is not parent.test:
        other = parent.orelse if child in parent.body else parent.body
        # A long arm may name anything.
        return (parent.test, *(other if len(other) <= _SHORT else ()))
    if isinstance(parent, ast.ExceptHandler):
        return ()
    if isinstance(parent, TRIES) and child in parent.handlers:
        return parent.body
    if isinstance(parent, TRIES) and child in parent.body:
        return parent.handlers
    return ()


_SHORT = 3


def _mentions(part: ast.AST, name: str) -> bool:
    for node in ast.walk(part):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
            if name == getattr(node, "id", getattr(node, "attr", getattr(node, "value", None))):
                return True
        elif isinstance(node, ast.alias) and node.name == name:
            return True
    return False
