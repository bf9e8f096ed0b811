"""Modules that put into their state dict what is no parameter and no buffer.

The new functions look every key up in the model: one that a hook or an own method adds, and that names nothing there,
is an AttributeError [57b]. In a full state dict extra state has to be a tensor, a number or a string, or made of such
[23b].
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.state_dicts.functions import flow
from fsdp_migrate.facts import ModuleFacts

_HOOKS = ("_register_state_dict_hook", "register_state_dict_post_hook")
_METHOD, _OVERRIDDEN = "_save_to_state_dict", "state_dict"
_MODULE, _LAYERS = "Module", "torch.nn."
_EXTRA = "get_extra_state"
_PLAIN = (ast.Constant, ast.Dict, ast.List, ast.JoinedStr)


def added_keys(facts: ModuleFacts, node: ast.AST) -> str | None:
    """What may add keys to the state dict of a model, as far as the modules around `node` and its callers tell."""
    for other, shown in flow(facts, node):
        for where, what in other.memo(added_keys, lambda other=other: tuple(_adding(other))):  # type: ignore[misc]
            return f"`{what}` in {_place(facts, other, shown, where)}"
    return None


def extra_state(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Where extra state is defined that may be any object, as far as the modules around `node` and its callers tell."""
    for other, shown in flow(facts, node):
        for function in other.structure.functions:
            if function.name == _EXTRA and not _is_plain(function):
                return _place(facts, other, shown, function)
    return None


def _place(facts: ModuleFacts, other: ModuleFacts, shown: str, node: ast.AST) -> str:
    line = getattr(node, "lineno", 0)
    return f"line {line}" if other is facts else f"{shown}:{line}"


def _adding(facts: ModuleFacts) -> Iterator[tuple[ast.AST, str]]:
    for hook in _HOOKS:
        yield from ((call, hook) for call in facts.structure.method_calls.get(hook, ()))
    for function in facts.structure.functions:
        cls = facts.structure.parents[function]
        overrides = function.name == _OVERRIDDEN and isinstance(cls, ast.ClassDef) and _is_module(facts, cls)
        if function.name == _METHOD or overrides:
            yield function, function.name


def _is_module(facts: ModuleFacts, cls: ast.ClassDef) -> bool:
    names = [(ast.unparse(base), facts.names.qualified(base) or "") for base in cls.bases]
    return any(text.endswith(_MODULE) or name.startswith(_LAYERS) for text, name in names)


def _is_plain(function: ast.AST) -> bool:
    """Whether a function returns what is written out, or a tensor by a call of torch."""
    returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return)]
    return bool(returned) and all(
        isinstance(one, _PLAIN) or ast.unparse(one or function).startswith("torch.") for one in returned
    )
