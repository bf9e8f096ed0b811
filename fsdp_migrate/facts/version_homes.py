"""Version constants and helpers that a file imports from another module of its project."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from fsdp_migrate.facts.version_values import Unknown

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts
    from fsdp_migrate.facts.version_expressions import Env
    from fsdp_migrate.facts.version_tests import Evaluator


def value(evaluator: Evaluator, qualified: str) -> Any:
    """The value of an imported constant, evaluated where it is bound.

    Raises:
        Unknown: it is not bound in the project, or does not follow from the torch version.
    """
    found = _home(evaluator, qualified)
    if found is None:
        raise Unknown
    facts, name = found
    inner = evaluator.within(facts)
    held, gated = facts.gates.flags.held(facts.names.exported(name), evaluator.release)
    result = inner.agreed(inner.held(one, {}) for one in held)
    if not (gated or inner.varies):
        raise Unknown
    evaluator.varies = True
    return result


def called(evaluator: Evaluator, qualified: str, call: ast.Call, env: Env) -> Any:
    """What a call of an imported helper returns.

    Raises:
        Unknown: it is not defined in the project, or more than the torch version decides what it returns.
    """
    found = _home(evaluator, qualified)
    bindings = [] if found is None else found[0].names.exported(found[1])
    if found is None or len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
        raise Unknown
    inner = evaluator.within(found[0])
    result = evaluator.called(bindings[0].node, call, env, inner)
    if not inner.varies:
        raise Unknown
    evaluator.varies = True
    return result


def _home(evaluator: Evaluator, qualified: str) -> tuple[ModuleFacts, str] | None:
    elsewhere = getattr(evaluator.names, "elsewhere", None)
    found: tuple[ModuleFacts, str] | None = None if elsewhere is None else elsewhere.home(qualified)
    return found
