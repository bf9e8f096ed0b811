"""The statements that a state-dict type is set for, as far as that is plain to see."""

from __future__ import annotations

import ast

from fsdp_migrate.code.state_dicts.settings import NotUnderstood
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.contexts import enclosing_settings
from fsdp_migrate.facts.rebinding import changed_between, place_of
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.records import NamedTuple


class Region(NamedTuple):
    """The statements that a setting is in force for.

    `statement` sets the type; `block` is the `with` that goes with it, None if none does: the one that sets the type,
    whose `item` does so, or one of a stack that nothing else is entered on. `named` gives the context its name.
    """

    statement: ast.stmt
    statements: list[ast.stmt]
    block: ast.With | None
    item: ast.withitem | None = None
    named: ast.stmt | None = None


def region_of(facts: ModuleFacts, call: ast.Call, model: ast.expr) -> Region:
    """What a call is in force for that sets the type of a model.

    Raises:
        NotUnderstood: that is not plain to see.
    """
    parent = facts.structure.parents[call]
    if isinstance(parent, ast.withitem):
        return _block(facts, parent, model)
    if isinstance(parent, ast.Assign) and (item := _entering(facts, parent)) is not None:
        if changed_between(facts, model, place_of(call), place_of(item.context_expr)):
            raise NotUnderstood("the model may be another one where the context is entered: create the context there")
        return _block(facts, item, model)._replace(named=parent)
    if isinstance(parent, ast.Expr) and getattr(call.func, "attr", "") == "set_state_dict_type":
        return _set_for_good(facts, model, parent)
    if isinstance(parent, ast.Call) and isinstance(facts.structure.parents[parent], ast.Expr):
        return _on_stack(facts, parent)
    if isinstance(parent, ast.Return):
        name = facts.function_name(parent)
        raise NotUnderstood(f"{name} returns the context to its callers: call the new functions there")
    if isinstance(parent, ast.IfExp):
        raise NotUnderstood("whether the type is set is only known at run time: call the new functions where it is")
    raise NotUnderstood("the context is not entered where it is created: use `with` here")


def _block(facts: ModuleFacts, item: ast.withitem, model: ast.expr) -> Region:
    """The block of a `with` that enters the context."""
    block = facts.structure.parents[item]
    if not isinstance(block, ast.With) or item.optional_vars is not None:
        raise NotUnderstood("only a plain `with` without `as` can be removed")
    behind = block.items[block.items.index(item) + 1 :]
    others = (one for each in behind if (one := facts.fsdp.setting(each.context_expr)) is not None)
    if any(facts.fsdp.same_object(one.model, model) for one in others):
        raise NotUnderstood("the same `with` sets another type of this model: remove one of them")
    return Region(block, block.body, block, item)


def _entering(facts: ModuleFacts, statement: ast.Assign) -> ast.withitem | None:
    """Where a context is entered that a statement gives a name, if that is all that is done with it."""
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or len(statement.targets) > 1:
        return None
    home = facts.scope(target).lookup(target.id)
    uses = [] if home is None else [use for inner in home.nested() for use in inner.uses.get(target.id, ())]
    if home is None or len(home.bindings[target.id]) != 1 or len(uses) != 1:
        return None
    item = facts.structure.parents[uses[0]]
    same = facts.function(uses[0]) is facts.function(statement)
    return item if isinstance(item, ast.withitem) and item.context_expr is uses[0] and same else None


def _set_for_good(facts: ModuleFacts, model: ast.expr, statement: ast.Expr) -> Region:
    """The rest of the function that makes the model, sets its type and is done with it."""
    function = facts.function(statement)
    body = getattr(function, "body", [])
    made = facts.names.bindings(model) if isinstance(model, ast.Name) else []
    is_own = bool(made) and all(facts.function(one.node) is function and _is_made(facts, one) for one in made)
    others = _others_asking(facts, model, function)
    if others:
        raise NotUnderstood(f"the type stays set, and {others} may use it, too: call the new functions there")
    if not is_own:
        text = ast.unparse(model)
        raise NotUnderstood(
            f"`{text}` is not created here, and the type stays set for other code: call the new functions there, too"
        )
    if statement not in body:
        raise NotUnderstood("the type is set under a condition: set it where the model is created")
    rest = _until_another(facts, model, body[body.index(statement) + 1 :])
    if not rest:
        raise NotUnderstood("no visible code asks the model for state after this")
    return Region(statement, rest, None)


def _until_another(facts: ModuleFacts, model: ast.expr, statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements in front of one that gives the name of the model to another, or sets its type again."""
    for number, statement in enumerate(statements):
        value = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        setting = None if not isinstance(statement, ast.Expr) or value is None else facts.fsdp.setting(value)
        if setting is not None and facts.fsdp.same_object(setting.model, model):
            return statements[:number]
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == ast.unparse(model)]
        stored = [node for node in names if isinstance(node.ctx, ast.Store)]
        if stored and isinstance(statement, ast.Assign) and len(stored) == len(names):
            return statements[:number]
    return statements


def _is_made(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether an assignment binds a name, of what a call gives where it binds several."""
    statement = facts.statement(binding.node)
    several = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)
    return binding.value is not None or (isinstance(binding.node, ast.Name) and several)


def _others_asking(facts: ModuleFacts, model: ast.expr, own: ast.AST) -> str:
    """The other functions of the file that ask a model of the same name for state, as a list in words."""
    name = _last(model)
    methods = facts.structure.method_calls
    calls = [*methods.get("state_dict", ()), *methods.get("load_state_dict", ())]
    of_model = [call for call in calls if isinstance(call.func, ast.Attribute) and _last(call.func.value) == name]
    of_class = [*methods.get("optim_state_dict", ()), *methods.get("optim_state_dict_to_load", ())]
    unset = [call for call in (*of_model, *of_class) if next(enclosing_settings(facts, call), None) is None]
    found = {facts.function_name(call) for call in unset if facts.function(call) is not own}
    return ", ".join(sorted(found)[:3])


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _on_stack(facts: ModuleFacts, entering: ast.Call) -> Region:
    """The statements behind `stack.enter_context(...)` in the `with` of the stack."""
    statement = facts.statement(entering)
    block, func = facts.structure.parents[statement], entering.func
    is_entering = isinstance(func, ast.Attribute) and func.attr == "enter_context" and len(entering.args) == 1
    if not is_entering or not isinstance(block, ast.With) or statement not in block.body:
        raise NotUnderstood("the context is not entered here: use `with` here")
    stack = ast.unparse(func.value)  # type: ignore[attr-defined]
    item = next((one for one in block.items if one.optional_vars and ast.unparse(one.optional_vars) == stack), None)
    if item is None:
        raise NotUnderstood("the stack that the context is entered on is not created by this `with`: use `with` here")
    rest = block.body[block.body.index(statement) + 1 :]
    if not rest:
        raise NotUnderstood("no visible code asks the model for state after this")
    return Region(statement, rest, block if _serves_only(facts, block, item) else None, item)


def _serves_only(facts: ModuleFacts, block: ast.With, item: ast.withitem) -> bool:
    """Whether a `with` makes a stack that one context is entered on, and does no more."""
    made, name = item.context_expr, item.optional_vars
    is_stack = isinstance(made, ast.Call) and facts.names.qualified(made.func) == "contextlib.ExitStack"
    if not is_stack or len(block.items) > 1 or not isinstance(name, ast.Name):
        return False
    home = facts.scope(name).lookup(name.id)
    uses = [] if home is None else [use for inner in home.nested() for use in inner.uses.get(name.id, ())]
    return len(uses) == 1 and home is not None and len(home.bindings[name.id]) == 1
