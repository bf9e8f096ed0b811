"""Whether `torch.compile` may have made the model.

The new functions leave `_orig_mod.` out of the names of a compiled model, outside and inside, so that files change
their keys [21b 21c].
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.state_dicts.functions import calls_of, users_of
from fsdp_migrate.facts import ModuleFacts

_COMPILE = "torch.compile"
_MOST_STEPS = 3


def compiled(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Where the module around `node`, or one that calls its function, compiles something; None where none does."""
    seen: dict[int, None] = {}
    for other, shown in _flow(facts, node, facts.path, _MOST_STEPS):
        if id(other) in seen:
            continue
        seen[id(other)] = None
        for call in other.structure.method_calls.get("compile", ()):
            if other.names.qualified(call.func) == _COMPILE and not _is_of_function(other, call):
                where = f"line {call.lineno}" if other is facts else f"{shown}:{call.lineno}"
                return f"`torch.compile` in {where}"
    return None


def _is_of_function(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a function is compiled, or nothing that is written here, as by a decorator with arguments."""
    if not call.args:
        return True
    first = call.args[0]
    return isinstance(first, ast.Name) and isinstance(facts.names.definition(first), ast.FunctionDef)


def _flow(facts: ModuleFacts, node: ast.AST, shown: str, steps: int) -> Iterator[tuple[ModuleFacts, str]]:
    yield facts, shown
    function = facts.function(node)
    if steps == 0 or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    cls = facts.structure.parents[function]
    if isinstance(cls, ast.ClassDef):
        yield from users_of(facts, cls.name)
    for caller in calls_of(facts, function):
        if caller.facts is not facts or caller.call is not node:
            yield from _flow(caller.facts, caller.call, caller.shown, steps - 1)
