"""Names that a module keeps beside that of the wrapped model: FSDP2 shards in place, so that they are the same then."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.targets.fsdp2.precision import Impossible

_OF_VALUES = frozenset({"state_dict", "load_state_dict"})


def check_plain_names(facts: ModuleFacts, call: ast.Call, module: ast.expr) -> None:
    """Nothing is done with the plain module, once it is wrapped, that is something else with a sharded one.

    Raises:
        Impossible: it is, by the name that the module has.
    """
    for use in _later_uses(facts, call, module):
        parent = facts.structure.parents[use]
        calls = isinstance(parent, ast.Call) and parent.func is use and facts.function(use) is facts.function(call)
        if calls or (isinstance(parent, ast.Attribute) and parent.attr in _OF_VALUES):
            raise Impossible(
                use,
                f"`{ast.unparse(use)}` stays the plain module with FSDP1, and is the sharded model with FSDP2",
                "use the wrapped model there",
            )


def _later_uses(facts: ModuleFacts, call: ast.Call, module: ast.expr) -> Iterator[ast.expr]:
    statement, text = facts.statement(call), ast.unparse(module)
    if text in _targets(statement):
        return
    if isinstance(module, ast.Name):
        home = facts.scope(module).lookup(module.id)
        bindings = facts.names.bindings(module)
        scopes = [one for one in facts.structure.module.nested() if one.lookup(module.id) is home]
        for one in (use for scope in scopes for use in scope.uses.get(module.id, ())):
            known = facts.names.bindings(one)
            same = known == bindings or any(binding in bindings for binding in known)
            if same and isinstance(one.ctx, ast.Load) and _is_after(facts, one, statement):
                yield one
    elif isinstance(module, ast.Attribute):
        cls = facts.class_around(module)
        for two in facts.structure.attributes:
            same = isinstance(two.ctx, ast.Load) and two.attr == module.attr and ast.unparse(two) == text
            if same and facts.class_around(two) is cls and _is_after(facts, two, statement):
                yield two


def _targets(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        return {ast.unparse(one) for one in statement.targets}
    return {ast.unparse(statement.target)} if isinstance(statement, ast.AnnAssign) else set()


def _is_after(facts: ModuleFacts, node: ast.expr, statement: ast.stmt) -> bool:
    """Whether a node may be evaluated after a statement: behind it in its function, or in another one.

    What stands in another arm of an `if` than the statement does not count.
    """
    arms = dict(_arms(facts, statement))
    if any(arms.get(block, child) != child for block, child in _arms(facts, node)):
        return False
    end = (statement.end_lineno or 0, statement.end_col_offset or 0)
    return facts.function(node) is not facts.function(statement) or place_of(node) > end


def _arms(facts: ModuleFacts, node: ast.AST) -> Iterator[tuple[ast.If, str]]:
    """The `if` statements around a node, with the arm that it stands in."""
    child = node
    while child in facts.structure.parents:
        parent = facts.structure.parents[child]
        if isinstance(parent, ast.If) and child is not parent.test:
            yield parent, "body" if child in parent.body else "orelse"
        child = parent
