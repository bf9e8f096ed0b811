"""The old keyword of wrap policies, looked up in `**kwargs`."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Scope


def read_by_key(facts: ModuleFacts, scope: Scope, old: str, new: str) -> ast.Constant | None:
    """Where a function takes `old` out of its `**kwargs`, None where it does not, or knows `new` too."""
    function = scope.node
    extra = getattr(getattr(function, "args", None), "kwarg", None)
    if extra is None or new in scope.bindings:
        return None
    keys = [string for string in facts.structure.strings if string.value in (old, new)]
    own = [key for key in keys if scope in facts.scope(key).enclosing()]
    if any(key.value == new for key in own):
        return None
    return next((key for key in own if _looked_up_in(facts, key, extra.arg)), None)


def _looked_up_in(facts: ModuleFacts, key: ast.Constant, name: str) -> bool:
    """Whether a key is looked up in the dict `name`."""
    parent = facts.structure.parents[key]
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr in ("get", "pop"):
        return parent.args[:1] == [key] and getattr(parent.func.value, "id", None) == name
    return isinstance(parent, ast.Subscript) and getattr(parent.value, "id", None) == name
