"""What an argument of an optimizer-state call is, where one position had several meanings over the releases."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import calls_in, is_neutral

_GROUP_WORDS = ("group", "subgroup", "pg")
_WORLD = ("WORLD", "_get_default_group")
_PARAMETER_METHODS = ("parameters", "named_parameters")
_PARAMETER_WORDS = ("params", "parameters", "optim_input", "param_groups")


def is_group(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an argument is a process group, by its name or by what made it."""
    made = facts.names.definition(node) if isinstance(node, ast.Name) else None
    return _speaks_of_group(node) or (isinstance(made, (ast.Call, ast.Attribute)) and _speaks_of_group(made))


def _speaks_of_group(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in _WORLD:
        return True
    words = _last_name(node).lower().strip("_").split("_")
    return words[-1] in _GROUP_WORDS and words[-2:-1] not in (["param"], ["parameter"])


def is_optim_input(node: ast.expr) -> bool:
    """Whether an argument is what an optimizer was built from, by its name or as `module.parameters()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _PARAMETER_METHODS
    name = _last_name(node).lower()
    return any(name == word or name.endswith(f"_{word}") for word in _PARAMETER_WORDS)


def has_effect(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether evaluating an argument may do something that would be missed without it."""
    return any(not is_neutral(call, facts.names) and not is_optim_input(call) for call in calls_in(node))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
