"""Whether an expression still means the same object at a later place of its function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

Place = tuple[int, int]


def place_of(node: ast.AST) -> Place:
    """Line and column of a node, for ordering."""
    return (node.lineno, node.col_offset)  # type: ignore[attr-defined]


def changed_between(facts: ModuleFacts, node: ast.expr, one: Place, two: Place) -> bool:
    """Whether a name in `node` is bound, or a part of it assigned, between two places of its function."""
    first, last = sorted((one, two))
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            home = facts.scope(part).lookup(part.id)
            if home is not None and any(first < b.position < last for b in home.bindings[part.id]):
                return True
    stored = {ast.unparse(store) for store in _stores(facts, node, first, last)}
    return bool(stored) and not stored.isdisjoint(_parts(node))


def _stores(facts: ModuleFacts, node: ast.expr, first: Place, last: Place) -> list[ast.expr]:
    stores = facts.memo(_stores_by_function, lambda: _stores_by_function(facts)).get(facts.function(node), ())
    return [store for store in stores if first < place_of(store) < last]


def _stores_by_function(facts: ModuleFacts) -> dict[ast.AST, list[ast.expr]]:
    """The attributes and items that are assigned or deleted, by function."""
    found: dict[ast.AST, list[ast.expr]] = {}
    candidates: list[ast.Attribute | ast.Subscript] = [*facts.structure.attributes, *facts.structure.subscripts]
    for store in candidates:
        if not isinstance(store.ctx, ast.Load):
            found.setdefault(facts.function(store), []).append(store)
    return found


def _parts(node: ast.expr) -> set[str]:
    """The texts of the attributes and items that `node` goes through, itself included."""
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, (ast.Attribute, ast.Subscript))}
