"""What the constructions of a closure visibly say, for uses whose meaning depends on it."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, is_literal, is_written_out
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.targets.fsdp2.arguments import written_out
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction
from fsdp_migrate.targets.fsdp2.policies import AtRunTime

_NONE = ast.Constant(None)


def keeps_parameters(closure: Closure) -> bool:
    """Whether FSDP1 visibly kept the parameters of the module: `use_orig_params=True`."""
    return all(is_literal(_argument(one, "use_orig_params"), True) for one in closure.constructions)


def gives_no_precision(closure: Closure) -> bool:
    """Whether the models visibly compute in the dtypes of their parameters."""
    return all(is_literal(_argument(one, "mixed_precision"), None) for one in closure.constructions)


def offloads(closure: Closure) -> bool:
    """Whether parameters may be kept on the CPU."""
    return not all(is_literal(_argument(one, "cpu_offload"), None) for one in closure.constructions)


def ignores(closure: Closure) -> bool:
    """Whether some parameters may be left unsharded."""
    given = (_argument(one, name) for one in closure.constructions for name in ("ignored_modules", "ignored_states"))
    return not all(is_literal(one, None) for one in given)


def accumulates_alike(closure: Closure) -> bool:
    """Whether gradients are visibly reduced in the dtype in which they are computed."""
    return all(_is_even(one) for one in closure.constructions)


def _argument(construction: Construction, name: str) -> ast.expr | None:
    """What a construction gives for a parameter, None in so many words where it gives nothing; None if unknown."""
    try:
        return written_out(construction.facts, construction.call).values.get(name, _NONE)
    except (AtRunTime, BindingError):
        return None


def _is_even(construction: Construction) -> bool:
    facts, given = construction.facts, _argument(construction, "mixed_precision")
    policy = facts.names.value(given) if isinstance(given, ast.Name) else given
    return is_literal(given, None) or (isinstance(policy, ast.Call) and _has_one_dtype(facts, policy))


def _has_one_dtype(facts: ModuleFacts, policy: ast.Call) -> bool:
    named = isinstance(policy.func, (ast.Name, ast.Attribute)) and facts.names.qualified(policy.func)
    if named != f"{PACKAGE}.MixedPrecision" or not is_written_out(policy):
        return False
    fields = dict(zip(("param_dtype", "reduce_dtype"), policy.args))
    fields.update((one.arg, one.value) for one in policy.keywords if one.arg is not None)
    reduced, computed = fields.get("reduce_dtype", _NONE), fields.get("param_dtype", _NONE)
    return is_literal(reduced, None) or ast.unparse(computed) == ast.unparse(reduced)
