"""Whether `torch.compile` may have made the model.

The new functions leave `_orig_mod.` out of the names of a compiled model, outside and inside, so that files change
their keys [21b 21c].
"""

from __future__ import annotations

import ast

from fsdp_migrate.code.state_dicts.functions import flow
from fsdp_migrate.facts import ModuleFacts

_COMPILE = "torch.compile"


def compiled(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Where the module around `node`, or one that calls its function, compiles something; None where none does."""
    for other, shown in flow(facts, node):
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
