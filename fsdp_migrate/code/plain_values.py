"""Values of a state dict that distributed checkpointing stores as they are: nothing with a `state_dict` of its own.

`dcp.save` and `dcp.load` look at the values of the dict that they get, and no deeper (torch 2.2 to 2.15,
state_dict_saver.py `_stateful_to_state_dict`): a dict in it is plain whatever it holds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from fsdp_migrate.code.argument_dicts import dict_scope, is_builtin_dict, update_of, uses_in
from fsdp_migrate.code.torch_names import torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import Binding, Kind

_DISPLAYS = (
    ast.Constant,
    ast.JoinedStr,
    ast.Dict,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.DictComp,
    ast.ListComp,
    ast.SetComp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
)
_PLAIN_CLASSES = frozenset("int float str bool bytes dict list tuple set len sum max min round range".split())
_TENSORS = frozenset(
    "tensor as_tensor zeros ones empty full arange rand randn randint zeros_like ones_like empty_like full_like "
    "rand_like randn_like stack cat get_rng_state get_rng_state_all".split()
)
_METHODS = frozenset("item tolist detach clone numel get_rng_state get_last_lr".split())
_STATE = "state_dict"
# What has a `state_dict`: modules, optimizers, schedulers.
_STATEFUL = ("torch.nn.", "torch.optim.")


def unplain(facts: ModuleFacts, state: ast.expr) -> Iterator[ast.expr]:
    """The values of a state dict that are not seen to be plain, the dict itself where they are not visible."""
    yield from _of_dict(facts, state, set())  # what was followed already, which is looked at once


def is_stateful(facts: ModuleFacts, value: ast.expr) -> bool:
    """Whether a value is seen to have a `state_dict`: a model, an optimizer, a scheduler."""
    if isinstance(value, (ast.Name, ast.Attribute)) and facts.fsdp.is_instance(value, _STATE):
        return True
    built = facts.names.value(value) if isinstance(value, ast.Name) else value
    path = torch_path(facts, built.func) if isinstance(built, ast.Call) else None
    return path is not None and path.startswith(_STATEFUL) and path.rpartition(".")[2][:1].isupper()


def _of_dict(facts: ModuleFacts, node: ast.expr, seen: set[object]) -> Iterator[ast.expr]:
    """The values of the dict `node` that may not be plain."""
    if isinstance(node, ast.Dict):
        yield from _of_items(facts, zip(node.keys, node.values), seen)
    elif isinstance(node, ast.DictComp):
        yield from _of_comprehension(facts, node, seen)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from (*_of_dict(facts, node.left, seen), *_of_dict(facts, node.right, seen))
    elif isinstance(node, ast.IfExp):
        yield from (*_of_dict(facts, node.body, seen), *_of_dict(facts, node.orelse, seen))
    elif isinstance(node, ast.Name):
        yield from _of_name(facts, node, seen)
    elif isinstance(node, ast.Call) and is_builtin_dict(facts, node.func):
        yield from _of_arguments(facts, node, seen)
    elif _gives_state(node):
        yield from _of_call(facts, node, seen)
    elif not is_literal(node, None):
        yield node


def _of_items(
    facts: ModuleFacts, items: Iterable[tuple[ast.expr | None, ast.expr]], seen: set[object]
) -> Iterator[ast.expr]:
    for key, value in items:
        if key is None:
            yield from _of_dict(facts, value, seen)
        elif not _is_plain(facts, value, seen):
            yield value


def _of_comprehension(facts: ModuleFacts, node: ast.DictComp, seen: set[object]) -> Iterator[ast.expr]:
    """The value of a comprehension, which is plain if it is one of a plain dict, or a tensor made from that."""
    turns = node.generators[0]
    method = turns.iter.func if isinstance(turns.iter, ast.Call) else None
    takes = turns.target.elts[-1] if isinstance(turns.target, ast.Tuple) else None
    itself = isinstance(takes, ast.Name) and isinstance(node.value, ast.Name) and takes.id == node.value.id
    if itself and isinstance(method, ast.Attribute) and method.attr == "items":
        yield from _of_dict(facts, method.value, seen)
    elif not _is_plain(facts, node.value, seen):
        yield node.value


def _of_arguments(facts: ModuleFacts, call: ast.Call, seen: set[object]) -> Iterator[ast.expr]:
    """The values that `dict(...)` or `state.update(...)` takes."""
    for argument in call.args:
        yield from _of_dict(facts, argument, seen)
    for keyword in call.keywords:
        yield from _of_items(facts, [(ast.Constant(keyword.arg) if keyword.arg else None, keyword.value)], seen)


def _of_name(facts: ModuleFacts, node: ast.Name, seen: set[object]) -> Iterator[ast.expr]:
    """The values of the dict that a name holds: as it is bound, and as statements set them."""
    bindings, home = _bindings(facts, node), dict_scope(facts, node)
    if not bindings or home is None or any(binding.value is None for binding in bindings):
        yield node
        return
    for binding in bindings:
        if binding.value is not None and binding.value not in seen:
            seen.add(binding.value)
            yield from _of_dict(facts, binding.value, seen)
    if (home, node.id) in seen:
        return
    seen.add((home, node.id))
    for use in uses_in(home, node.id):
        if place_of(use) < place_of(node) and _is_given_away(facts, use):
            yield node
        target, update = facts.structure.parents[use], update_of(facts, use)
        if update is not None and getattr(update.func, "attr", "") == "update":
            yield from _of_arguments(facts, update, seen)
        elif update is not None:
            yield from (value for value in update.args[1:] if not _is_plain(facts, value, seen))
        elif isinstance(target, ast.Subscript) and isinstance(target.ctx, ast.Store):
            assignment = facts.structure.parents[target]
            value = assignment.value if isinstance(assignment, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
            if value is None or target.value is not use or not _is_plain(facts, value, seen):
                yield value or node


def _bindings(facts: ModuleFacts, node: ast.Name) -> list[Binding]:
    """The bindings of a name where it is read; in `state = {**state}` those from before that statement."""
    found, statement = facts.names.bindings(node), facts.statement(node)
    if all(facts.statement(one.node) is not statement for one in found if one.kind is Kind.ASSIGNMENT):
        return found
    return [
        one
        for one in found[0].scope.bindings[node.id]
        if one.kind is not Kind.ASSIGNMENT or facts.statement(one.node) is not statement
    ]


def _is_given_away(facts: ModuleFacts, use: ast.Name) -> bool:
    """Whether a dict goes to where it may be given other values: by another name, or in a function of the project."""
    parent = facts.structure.parents[use]
    call = facts.structure.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or call.func is use:
        return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
    if _gives_state(call) or torch_path(facts, call.func) is not None:
        return False
    named = isinstance(call.func, ast.Name)
    return not (named and (facts.names.qualified(call.func) or "").startswith("builtins."))


def _of_call(facts: ModuleFacts, call: ast.Call, seen: set[object]) -> Iterator[ast.expr]:
    """The values of the state dict that a call returns, as far as the file has the function; a method of torch's."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    own = [function for function in facts.structure.functions if function.name == name and function not in seen]
    seen.update(own)
    returned = [
        node.value
        for function in own
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None and facts.function(node) is function
    ]
    is_method = isinstance(call.func, ast.Attribute) and (
        (facts.names.qualified(call.func) or "builtins").startswith("builtins")
    )
    if not returned and not is_method and torch_path(facts, call.func) is None:
        yield call
    for value in returned:
        yield from _of_dict(facts, value, seen)


def _gives_state(node: ast.expr) -> TypeGuard[ast.Call]:
    """Whether a call returns a state dict, by its name: `model.state_dict()`, `FSDP.optim_state_dict(model, optim)`."""
    if not isinstance(node, ast.Call):
        return False
    return str(getattr(node.func, "attr", getattr(node.func, "id", ""))).endswith(_STATE)


def _is_plain(facts: ModuleFacts, node: ast.expr, seen: set[object]) -> bool:
    """Whether a value is visibly a number, a text, a tensor or a container of anything."""
    if isinstance(node, _DISPLAYS) or _gives_state(node):
        return True
    if isinstance(node, ast.IfExp):
        return _is_plain(facts, node.body, seen) and _is_plain(facts, node.orelse, seen)
    if isinstance(node, ast.BoolOp):
        return all(_is_plain(facts, value, seen) for value in node.values)
    if isinstance(node, ast.Name):
        bindings = _bindings(facts, node)
        return bool(bindings) and all(_binds_plain(facts, one, seen) for one in bindings)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and not any(_of_name(facts, node.value, seen))
    return isinstance(node, ast.Call) and _makes_plain(facts, node.func)


def _makes_plain(facts: ModuleFacts, function: ast.expr) -> bool:
    """Whether a call of `function` gives something plain."""
    if isinstance(function, ast.Name):
        qualified = facts.names.qualified(function) or ""
        if qualified.startswith("builtins."):
            return qualified.removeprefix("builtins.") in _PLAIN_CLASSES
    path = torch_path(facts, function)
    if path is not None:
        return path.rpartition(".")[2] in _TENSORS
    return isinstance(function, ast.Attribute) and function.attr in _METHODS


def _binds_plain(facts: ModuleFacts, binding: Binding, seen: set[object]) -> bool:
    if binding in seen:
        return True
    seen.add(binding)
    if binding.value is not None:
        return _is_plain(facts, binding.value, seen)
    if binding.kind is Kind.PARAMETER:
        annotation = getattr(binding.node, "annotation", None)
        return annotation is not None and _is_plain_class(facts, annotation)
    loop = facts.structure.parents.get(binding.node, binding.node)
    turns = loop.iter if isinstance(loop, ast.For) and loop.target is binding.node else None
    return isinstance(turns, ast.Call) and facts.names.qualified(turns.func) == "builtins.range"


def _is_plain_class(facts: ModuleFacts, annotation: ast.expr) -> bool:
    if not isinstance(annotation, (ast.Name, ast.Attribute)):
        return False
    qualified = facts.names.qualified(annotation) or ""
    return qualified == "torch.Tensor" or qualified.removeprefix("builtins.") in _PLAIN_CLASSES
