"""State-dict types that are set on a part of a model only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.contexts import is_in_force

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

# The names of an attribute chain, without the `self` of a method: functions share models by what they call them.
Path = tuple[str, ...]
_SELF = ("self", "cls")
_ADDING = ("add_module", "register_module", "append", "insert", "extend")


def type_set_on_part(facts: ModuleFacts, node: ast.AST, model: ast.expr) -> str | None:
    """The part of `model` that has a type of its own: set around `node`, or for good anywhere in the file.

    A part is what is read off the model (`model.blocks[0]`, a turn of `for block in FSDP.fsdp_modules(model)`), what
    the model is built from, and what is put into it. FSDP refuses to set a type on a module whose parts have different
    ones, and overwrites their configs with its own (torch 2.0 to 2.15, fully_sharded_data_parallel.py
    `set_state_dict_type`).
    """
    whole = _path(facts.fsdp.followed(model))
    around = [one for one in facts.fsdp.settings("state_dict_type") if is_in_force(facts, one, node)]
    for setting in (*around, *facts.fsdp.settings("set_state_dict_type")):
        part = facts.fsdp.followed(setting.model)
        if whole is not None and not _is_same(_path(part), whole) and _is_part(facts, part, whole, node):
            return ast.unparse(setting.model)
    return None


def _is_same(path: Path | None, whole: Path) -> bool:
    return path is not None and path[-len(whole) :] == whole


def _is_part(facts: ModuleFacts, part: ast.expr, whole: Path, node: ast.AST) -> bool:
    if not whole:
        own, path = _attributes_of_self(facts, node), _path(part)
        return path is not None and not own.isdisjoint(path)
    put = facts.memo(_assigned, lambda: list(_assigned(facts)))
    origins, waiting = set[Path](), list(_paths(part))
    while waiting:
        path = waiting.pop()
        if path not in origins:
            origins.add(path)
            read = (value for target, value in put if path[: len(target)] == target and not _builds(facts, value))
            waiting += [found for value in read for found in _paths(value)]
    if any(_goes_through(path, whole) for path in origins):
        return True
    ingredients, waiting = set[Path](), [whole]
    while waiting:
        path = waiting.pop()
        values = (value for target, value in put if target[: len(path)] == path)
        new = {found for value in values for found in _paths(value)} - ingredients - {whole}
        ingredients |= new
        waiting += new
    return any(path[: len(one)] == one for one in ingredients for path in _paths(part))


def _goes_through(path: Path, whole: Path) -> bool:
    """Whether `whole` is somewhere in a path before its end, or all of it."""
    return path == whole or any(path[i : i + len(whole)] == whole for i in range(len(path) - len(whole)))


def _builds(facts: ModuleFacts, value: ast.expr) -> bool:
    """Whether a value is a new FSDP module, which has its argument as a part and is none of it."""
    return isinstance(value, ast.Call) and facts.fsdp.is_class(value.func)


def _assigned(facts: ModuleFacts) -> Iterator[tuple[Path, ast.expr]]:
    """What the file assigns to names and attributes, iterates over with them, or adds to them."""
    for node in ast.walk(facts.source.tree):
        targets: list[ast.expr] = []
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Assign):
            targets, values = node.targets, [node.value]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            targets, values = [node.target], [node.value]
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            targets, values = [node.target], [node.iter]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            targets, values = [node.func.value], [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            targets, values = node.args[:1], [*node.args[2:]]
        paths = [path for target in targets for path in _paths(target)]
        yield from ((path, value) for path in paths for value in values if value is not None)


def _paths(node: ast.AST) -> Iterator[Path]:
    """The longest attribute chains in an expression."""
    path = _path(node)
    if path is not None:
        yield from [path] if path else []
    else:
        for child in ast.iter_child_nodes(node):
            yield from _paths(child)


def _path(node: ast.AST) -> Path | None:
    """The names of an attribute chain from its root; None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return tuple(names) if node.id in _SELF else (node.id, *names)


def _attributes_of_self(facts: ModuleFacts, node: ast.AST) -> frozenset[str]:
    """The attributes that the class around `node` gives its objects."""
    stores = (one for one in facts.structure.stores if isinstance(one.value, ast.Name) and one.value.id in _SELF)
    return frozenset(one.attr for one in stores if facts.class_around(one) is facts.class_around(node))
