"""A state-dict type that is set once, for all that a program does with a model afterwards."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction


def lasts(closure: Closure, facts: ModuleFacts, setting: TypeSetting, asking: Sequence[Reference]) -> bool:
    """Whether a type is in force wherever models of a closure are asked for state; `asking` are these places.

    It is set by a statement of its own, which always runs: where the only model is wrapped, before anything else gets
    that; or where an object of a class is made, and only methods of that object ask.
    """
    statement, function = facts.structure.parents[setting.call], facts.function(setting.call)
    is_for_good = getattr(setting.call.func, "attr", "") == "set_state_dict_type"
    if not isinstance(statement, ast.Expr) or not is_for_good or facts.structure.parents[statement] is not function:
        return False
    cls = facts.structure.parents.get(function)
    is_made = isinstance(cls, ast.ClassDef) and getattr(function, "name", "") == "__init__"
    if is_made and all(_asks_itself(facts, one, cls) for one in asking):
        return True
    made = closure.constructions[0]
    is_here = len(closure.constructions) == 1 and made.facts is facts and facts.function(made.call) is function
    return is_here and all(_is_behind(facts, one, statement) for one in asking) and _is_next(facts, made, statement)


def _asks_itself(facts: ModuleFacts, one: Reference, cls: ast.AST | None) -> bool:
    """Whether a method of an object that is made asks a model that the object has."""
    method = one.facts.function(one.node)
    is_own = one.facts is facts and facts.structure.parents.get(method) is cls
    return is_own and getattr(method, "name", "") != "__init__" and ast.unparse(one.node).startswith("self.")


def _is_behind(facts: ModuleFacts, one: Reference, statement: ast.stmt) -> bool:
    """Whether a model is asked below the statement, if it is in the same function."""
    is_here = one.facts is facts and facts.function(one.node) is facts.function(statement)
    return not is_here or place_of(one.node) > place_of(statement)


def _is_next(facts: ModuleFacts, wrapped: Construction, statement: ast.stmt) -> bool:
    """Whether a statement follows the one that wraps a model, with nothing between that may ask for state."""
    block, made = facts.function(statement).body, facts.statement(wrapped.call)  # type: ignore[attr-defined]
    if made not in block or block.index(made) > block.index(statement):
        return False
    between = block[block.index(made) + 1 : block.index(statement)]
    calls = (node for one in between for node in ast.walk(one) if isinstance(node, ast.Call))
    return all((facts.names.qualified(call.func) or "").startswith(("torch.", "builtins.")) for call in calls)
