"""Whether a sharded optimizer state may hold DTensors, as it does since torch 2.2 if the model has a device mesh."""

from __future__ import annotations

import ast

from packaging.version import Version

from fsdp_migrate.code.legacy_methods import SHARDED, Method
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_written_out
from fsdp_migrate.facts.fsdp import FSDP, MESH
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.rules.supported_releases import newest

_SINCE = Version("2.2")
_DOUBT = "if the model was built with a `device_mesh`, the new call returns DTensor; the old one returned ShardedTensor"


def mesh_doubt(facts: ModuleFacts, call: ast.Call, method: Method, model: ast.expr) -> str | None:
    """Why a sharded save may give another tensor type than it did, None where it does not."""
    if method.loads or method.type_name != SHARDED or newest(facts, call) < _SINCE:
        return None
    if _is_built_without(facts, model):
        return None
    project = facts.project
    shown = not facts.fsdp.builds_without_mesh or (project is not None and project.is_written(MESH))
    return _DOUBT if shown or _is_from_elsewhere(facts, model) else None


def _is_built_without(facts: ModuleFacts, model: ast.expr) -> bool:
    """Whether all that a name is bound to is a call of torch's own FSDP, written out and without a mesh."""
    bindings = facts.names.bindings(model) if isinstance(model, ast.Name) else []
    calls = [binding.value for binding in bindings]
    return bool(calls) and all(
        isinstance(call, ast.Call)
        and facts.names.symbols(call.func) == {FSDP}
        and is_written_out(call)
        and not any(keyword.arg == MESH for keyword in call.keywords)
        for call in calls
    )


def _is_from_elsewhere(facts: ModuleFacts, model: ast.expr) -> bool:
    """Whether a model is what something imported returns, which builds it out of sight."""
    return any(_is_imported(facts, value.func) for value in _values(facts, model) if isinstance(value, ast.Call))


def _values(facts: ModuleFacts, model: ast.expr) -> list[ast.expr]:
    """What is assigned to a name or an attribute, alone or among others."""
    if isinstance(model, ast.Name):
        places: list[ast.AST] = [binding.node for binding in facts.names.bindings(model)]
    else:
        text = ast.unparse(model)
        places = [store for store in facts.structure.stores if ast.unparse(store) == text]
    statements = [facts.statement(place) for place in places]
    return [
        statement.value
        for statement in statements
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None
    ]


def _is_imported(facts: ModuleFacts, function: ast.expr) -> bool:
    """Whether a function comes from another module than torch's and this one."""
    if facts.fsdp.is_class(function):
        return False
    while isinstance(function, ast.Attribute):
        function = function.value
    if not isinstance(function, ast.Name):
        return False
    targets = [binding.target or "" for binding in facts.names.bindings(function) if binding.kind is Kind.IMPORT]
    return any(not f"{target}.".startswith("torch.") for target in targets)
