"""State-dict types that are set on a part of a model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.contexts import is_in_force

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

# The names of an attribute chain, without the `self` of a method: functions share models by what they call them.
NamePath = tuple[str, ...]
_Put = tuple[NamePath, ast.expr, bool]
_SELF = ("self", "cls")
_ADDING = ("add_module", "register_module", "append", "insert", "extend")


def type_set_on_part(facts: ModuleFacts, node: ast.AST, model: ast.expr) -> str | None:
    """The part of `model` that has its own type: set around `node`, or permanently anywhere in the file.

    A part is read from the model (`model.blocks[0]`, the variable of `for block in FSDP.fsdp_modules(model)`), or the
    model is built from it, or it is put into the model. FSDP refuses to set a type on a module whose parts have
    different ones, and overwrites their configs with its own (torch 2.0 to 2.15, fully_sharded_data_parallel.py
    `set_state_dict_type`).
    """
    whole = _path(facts.fsdp.followed(model))
    if whole is None:
        return None
    put = facts.memo(_assigned, lambda: list(_assigned(facts)))
    names = _names_of(put, whole)
    around = [one for one in facts.fsdp.settings("state_dict_type") if is_in_force(facts, one, node)]
    for setting in (*around, *facts.fsdp.settings("set_state_dict_type")):
        part = facts.fsdp.followed(setting.model)
        path = _path(part)
        if not whole:
            found = path is not None and not _attributes_of_self(facts, node).isdisjoint(path)
        elif path is not None and any(path[-len(name) :] == name for name in names):
            found = False  # the model itself
        else:
            found = _comes_from(facts, put, part, names) or _goes_into(put, part, names)
        if found:
            return ast.unparse(setting.model)
    return None


def _names_of(put: list[_Put], whole: NamePath) -> set[NamePath]:
    """Other names of the model, by plain assignments and calls of functions."""
    names, pairs = {whole}, [(target, path) for target, value, same in put if same and (path := _path(value))]
    while new := {b for pair in pairs for a, b in (pair, pair[::-1]) if a in names} - names:
        names |= new
    return names


def _comes_from(facts: ModuleFacts, put: list[_Put], part: ast.expr, names: set[NamePath]) -> bool:
    """Whether an object is read from the model, directly or not."""
    origins, waiting = set[NamePath](), list(_paths(part))
    while waiting:
        path = waiting.pop()
        if path not in origins and path not in names:
            values = (value for target, value, _ in put if path[: len(target)] == target and not _builds(facts, value))
            waiting += [one for value in values for one in _paths(value)]
        origins.add(path)
    return any(_goes_through(path, name) for path in origins for name in names)


def _goes_into(put: list[_Put], part: ast.expr, names: set[NamePath]) -> bool:
    """Whether an object, or what it is read from, is put into the model or its parts."""
    inside, waiting = set[NamePath](), list(names)
    while waiting:
        path = waiting.pop()
        values = (value for target, value, _ in put if target[: len(path)] == path)
        new = {one for value in values for one in _paths(value)} - inside - names
        inside |= new
        waiting += new
    return any(path[: len(one)] == one for one in inside for path in _paths(part))


def _goes_through(path: NamePath, whole: NamePath) -> bool:
    """Whether `whole` is a prefix or an inner part of a path."""
    return path == whole or any(path[i : i + len(whole)] == whole for i in range(len(path) - len(whole)))


def _builds(facts: ModuleFacts, value: ast.expr) -> bool:
    """Whether a value is a new FSDP module: its argument is a part of it, and it is no part of its argument."""
    return isinstance(value, ast.Call) and facts.fsdp.is_class(value.func)


def _assigned(facts: ModuleFacts) -> Iterator[_Put]:
    """The values that names and attributes are bound to, built from, or extended by: True for the same object."""
    functions = {one.name: [argument.arg for argument in one.args.args] for one in facts.structure.functions}
    for node in ast.walk(facts.source.tree):
        same, targets, values = True, list[ast.expr](), list[ast.expr]()
        if isinstance(node, ast.Assign):
            targets, values = node.targets, [node.value]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets, values = [node.target], [node.value]
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            same = isinstance(node.iter, (ast.Tuple, ast.List))
            targets, values = (
                [node.target],
                node.iter.elts if isinstance(node.iter, (ast.Tuple, ast.List)) else [node.iter],
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            same, targets, values = False, [node.func.value], [*node.args, *(one.value for one in node.keywords)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "setattr":
                same, targets, values = False, node.args[:1], node.args[2:]
            given = zip(functions.get(node.func.id, ()), node.args)
            yield from (((name,), value, True) for name, value in given)
        paths = [path for target in targets for path in _paths(target)]
        yield from ((path, value, same) for path in paths for value in values)


def _paths(node: ast.AST) -> Iterator[NamePath]:
    """The longest attribute chains in an expression."""
    path = _path(node)
    if path is not None:
        yield from [path] if path else []
    else:
        for child in ast.iter_child_nodes(node):
            yield from _paths(child)


def _path(node: ast.AST) -> NamePath | None:
    """The names of an attribute chain from its root, None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return tuple(names) if node.id in _SELF else (node.id, *names)


def _attributes_of_self(facts: ModuleFacts, node: ast.AST) -> frozenset[str]:
    """The attributes that the class around `node` assigns to `self`."""
    stores = (one for one in facts.structure.stores if isinstance(one.value, ast.Name) and one.value.id in _SELF)
    return frozenset(one.attr for one in stores if facts.class_around(one) is facts.class_around(node))
