"""The role of an argument of an optimizer-state call whose positions changed their meaning between releases."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.evaluation import calls_in, is_reading

_GROUP_WORDS = ("group", "subgroup", "pg")
_WORLD = ("WORLD", "_get_default_group")
_CLASS = "ProcessGroup"
_DICTS = ("dict", "mapping")
_PARAMETER_METHODS = ("parameters", "named_parameters")
OPTIMIZER_NAMES = ("optim", "optimizer", "opt")
_PARAMETER_WORDS = ("params", "parameters", "optim_input", "param_groups")


def is_group(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an argument is a process group, by its value or, if that is not visible, by its name."""
    made = made_as_group(facts, node)
    return _speaks_of_group(node) if made is None else made


def made_as_group(facts: ModuleFacts, node: ast.expr) -> bool | None:
    """Whether an argument is a process group, by its value or annotation; None if neither is visible."""
    if isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and node.attr in _WORLD):
        makers: list[ast.expr] = [node]
    elif isinstance(node, ast.Name) and (values := facts.names.definitions(node)):
        makers = [value for value in values if not is_literal(value, None)]
    else:
        makers = facts.fsdp.object_classes.all_classes(node)
    if makers and all(_speaks_of_group(maker) or _last_name(maker) == _CLASS for maker in makers):
        return True
    return False if any(is_dict(maker) for maker in makers) else None


def is_dict(maker: ast.expr) -> bool:
    """Whether an object is a dict, by its value or annotation."""
    if isinstance(maker, (ast.Dict, ast.DictComp)):
        return True
    while isinstance(maker, (ast.Call, ast.Subscript)):
        maker = maker.func if isinstance(maker, ast.Call) else maker.value
    return _last_name(maker).lower().endswith(_DICTS)


def _speaks_of_group(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in _WORLD:
        return True
    words = _last_name(node).lower().strip("_").split("_")
    return words[-1] in _GROUP_WORDS and words[-2:-1] not in (["param"], ["parameter"])


def is_called_optimizer(node: ast.expr) -> bool:
    """Whether a name or attribute has a name for optimizers."""
    return _last_name(node).rpartition("_")[2] in OPTIMIZER_NAMES


def is_optim_input(node: ast.expr) -> bool:
    """Whether an argument is what an optimizer was built from, by its name or as `module.parameters()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _PARAMETER_METHODS
    name = _last_name(node).lower()
    return any(name == word or name.endswith(f"_{word}") for word in _PARAMETER_WORDS)


def has_effect(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether evaluating an argument may have an effect."""
    return any(not is_reading(call, facts.names) and not is_optim_input(call) for call in calls_in(node))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
