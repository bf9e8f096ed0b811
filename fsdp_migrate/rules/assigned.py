"""Where the value of an expression is put, and read from again: names, parts of an unpacking, items of a local dict."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.changes import changed_between, place_of

# What may be done with a dict without changing what its items are.
_READS = ("get", "keys", "values", "items", "copy")
_READERS = ("builtins.print", "builtins.len", "torch.save")


def assigned(facts: ModuleFacts, value: ast.AST) -> Iterator[ast.Name | ast.Subscript]:
    """The names and items that `value` is assigned to where it stands."""
    parent = facts.structure.parents[value]
    targets: list[ast.expr] = []
    if isinstance(parent, ast.NamedExpr) or (isinstance(parent, ast.AnnAssign) and value is parent.value):
        targets = [parent.target]
    elif isinstance(parent, ast.Assign):
        targets = parent.targets
    elif isinstance(parent, (ast.Tuple, ast.List)) and isinstance(outer := facts.structure.parents[parent], ast.Assign):
        targets = [part for target in outer.targets if (part := _part(target, parent, value)) is not None]
    yield from (target for target in targets if isinstance(target, (ast.Name, ast.Subscript)))


def _part(target: ast.expr, display: ast.Tuple | ast.List, value: ast.AST) -> ast.expr | None:
    """The part of an unpacking that gets `value`, an element of `display`."""
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != len(display.elts):
        return None
    if any(isinstance(part, ast.Starred) for part in (*target.elts, *display.elts)):
        return None
    return next(part for part, element in zip(target.elts, display.elts) if element is value)


def later_items(facts: ModuleFacts, target: ast.Subscript) -> Iterator[ast.Subscript]:
    """Where an item just assigned to is read again in its function, while nothing else can have been put there."""
    base, home = target.value, facts.scope(target)
    if not isinstance(base, ast.Name) or not isinstance(target.slice, ast.Constant) or home.lookup(base.id) is not home:
        return
    if any(base.id in inner.uses for inner in home.nested() if inner is not home):
        return
    statement, text = facts.statement(target), ast.unparse(target)
    end = (statement.end_lineno or 0, statement.end_col_offset or 0)
    uses = [use for use in home.uses.get(base.id, ()) if place_of(use) > end]
    for item in facts.structure.subscripts:
        here = facts.scope(item) is home and place_of(item) > end and isinstance(item.ctx, ast.Load)
        if not here or ast.unparse(item) != text or changed_between(facts, item, place_of(target), place_of(item)):
            continue
        if all(_only_reads(facts, use) for use in uses if place_of(use) < place_of(item)):
            yield item


def _only_reads(facts: ModuleFacts, use: ast.Name) -> bool:
    """Whether a dict keeps its items here, but for one that is assigned by a key that is written out."""
    parent = facts.structure.parents[use]
    if isinstance(parent, ast.Subscript):
        return parent.value is use and (isinstance(parent.ctx, ast.Load) or isinstance(parent.slice, ast.Constant))
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READS
    if isinstance(parent, ast.Compare):
        return True
    return isinstance(parent, ast.Call) and use in parent.args and facts.names.qualified(parent.func) in _READERS
