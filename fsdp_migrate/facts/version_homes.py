"""Version constants and helpers that a file imports from another module of its project."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from fsdp_migrate.facts.version_values import Unknown

# Stands for a value that is not known.
MISSING = object()

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
    if found is None or _is_settled(*found):
        raise Unknown
    facts, name = found
    outcome = facts.memo((value, name, evaluator.build), lambda: _outcome(evaluator, facts, name))
    if outcome is None:
        raise Unknown
    evaluator.varies = True
    return outcome[0]


def _outcome(evaluator: Evaluator, facts: ModuleFacts, name: str) -> tuple[Any] | None:
    """The value that a name has at the end of its module, None when it is unknown or the same on every release."""
    inner = evaluator.within(facts)
    held, gated = facts.gates.flags.held(facts.names.exported(name), evaluator.release)
    try:
        result = inner.agreed(inner.held(one, {}) for one in held)
    except Exception:
        # The expression is the user's: whatever goes wrong in it would go wrong when it runs.
        result = MISSING
    if not (gated or inner.varies):
        _settled(facts).add(name)
        return None
    return None if result is MISSING else (result,)


def called(evaluator: Evaluator, qualified: str, call: ast.Call, env: Env) -> Any:
    """What a call of an imported helper returns.

    Raises:
        Unknown: it is not defined in the project, or more than the torch version decides what it returns.
    """
    found = _home(evaluator, qualified)
    if found is None or _is_settled(*found):
        raise Unknown
    facts, name = found
    bindings = facts.names.exported(name)
    inner = evaluator.within(facts)
    try:
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
            raise Unknown
        result = evaluator.called(bindings[0].node, call, env, inner)
    finally:
        if not inner.varies:
            _settled(facts).add(name)
    if not inner.varies:
        raise Unknown
    evaluator.varies = True
    return result


def _settled(facts: ModuleFacts) -> set[str]:
    """The names of a module that were seen not to ask for torch's version."""
    return facts.memo(_settled, set[str])


def _is_settled(facts: ModuleFacts, name: str) -> bool:
    return name in _settled(facts)


def _home(evaluator: Evaluator, qualified: str) -> tuple[ModuleFacts, str] | None:
    elsewhere = getattr(evaluator.names, "elsewhere", None)
    found: tuple[ModuleFacts, str] | None = None if elsewhere is None else elsewhere.home(qualified)
    return found
