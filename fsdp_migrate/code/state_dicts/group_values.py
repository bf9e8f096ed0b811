"""Values in the parameter groups of optimizers that a new full state cannot hold.

Where `get_optimizer_state_dict` gathers a state or moves it to the CPU, a value that is no tensor, number, string, list
or dict is a ValueError [45b]. Optimizers that keep their moments in a lower precision have a dtype there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.optimizer_classes import classes_of
from fsdp_migrate.facts import ModuleFacts

_DTYPES = frozenset(f"torch.{name}" for name in "float32 float float16 half bfloat16 float64 double".split())
_DTYPE = "torch.dtype"


def odd_group_value(facts: ModuleFacts, optimizer: ast.expr) -> str | None:
    """A class that an optimizer may be of, with the name of such a value, None if the project shows none."""
    for there, cls in classes_of(facts, optimizer):
        for function in cls.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                for name, value in _defaults(there, function):
                    if _is_odd(there, function, value):
                        return f"`{name}` of `{cls.name}`"
    return None


def _defaults(facts: ModuleFacts, function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """What an `__init__` hands up as the defaults of all groups."""
    for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
            continue
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            value = facts.names.value(given) if isinstance(given, ast.Name) else given
            if isinstance(value, ast.Dict):
                pairs = zip(value.keys, value.values)
                yield from ((str(key.value), one) for key, one in pairs if isinstance(key, ast.Constant))
            elif isinstance(value, ast.Call) and facts.names.qualified(value.func) == "builtins.dict":
                yield from ((keyword.arg, keyword.value) for keyword in value.keywords if keyword.arg)


def _is_odd(facts: ModuleFacts, function: ast.FunctionDef, value: ast.expr) -> bool:
    """Whether a value is a dtype or a function, as it stands, or as the default or annotation of its parameter."""
    if isinstance(value, ast.Lambda):
        return True
    if not isinstance(value, (ast.Name, ast.Attribute)):
        return False
    if facts.names.qualified(value) in _DTYPES:
        return True
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for parameter, default in zip((*positional, *given.kwonlyargs), (*defaults, *given.kw_defaults)):
        if isinstance(value, ast.Name) and parameter.arg == value.id:
            is_annotated = any(
                isinstance(part, (ast.Name, ast.Attribute)) and facts.names.qualified(part) == _DTYPE
                for part in (ast.walk(parameter.annotation) if parameter.annotation else ())
            )
            return is_annotated or (default is not None and _is_odd(facts, function, default))
    return False
