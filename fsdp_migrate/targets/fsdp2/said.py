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


def flattens(closure: Closure) -> bool:
    """Whether FSDP1 visibly made flat parameters of those of the module: without `use_orig_params`."""
    given = [_argument(one, "use_orig_params") for one in closure.constructions]
    return all(is_literal(one, None) or is_literal(one, False) for one in given)


def gives_no_precision(closure: Closure) -> bool:
    """Whether the models visibly compute in the dtypes of their parameters."""
    return all(is_literal(_argument(one, "mixed_precision"), None) for one in closure.constructions)


def computes_as_stored(closure: Closure) -> bool:
    """Whether the models visibly compute in the dtypes of their parameters: without `param_dtype`."""
    return all(
        is_literal(policy, None) or (policy is not None and is_literal(_dtypes(facts, policy)[0], None))
        for facts, given in ((one.facts, _argument(one, "mixed_precision")) for one in closure.constructions)
        for policy in _values(facts, given)
    )


def offloads(closure: Closure) -> bool:
    """Whether parameters may be kept on the CPU."""
    return not all(is_literal(_argument(one, "cpu_offload"), None) for one in closure.constructions)


def is_sharded_on_all_ranks(closure: Closure) -> bool:
    """Whether the parameters are visibly shared by all ranks there are: no mesh, no group, and no hybrid strategy."""
    return all(_is_on_all_ranks(one) for one in closure.constructions)


def _is_on_all_ranks(construction: Construction) -> bool:
    given = [_argument(construction, name) for name in ("process_group", "device_mesh")]
    strategy = _argument(construction, "sharding_strategy")
    named = construction.facts.names.qualified(strategy) if isinstance(strategy, (ast.Name, ast.Attribute)) else None
    is_hybrid = not is_literal(strategy, None) and (named is None or "HYBRID" in named)
    return all(is_literal(one, None) for one in given) and not is_hybrid


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
    return is_literal(given, None) or (policy is not None and _has_one_dtype(facts, policy))


def _has_one_dtype(facts: ModuleFacts, policy: ast.expr) -> bool:
    computed, reduced = _dtypes(facts, policy)
    if computed is None or reduced is None:
        return False
    return is_literal(reduced, None) or ast.unparse(computed) == ast.unparse(reduced)


def _dtypes(facts: ModuleFacts, policy: ast.expr) -> tuple[ast.expr | None, ast.expr | None]:
    """The dtypes of parameters and of reduced gradients in a policy, None where it is not written out."""
    if not isinstance(policy, ast.Call) or not isinstance(policy.func, (ast.Name, ast.Attribute)):
        return None, None
    if facts.names.qualified(policy.func) != f"{PACKAGE}.MixedPrecision" or not is_written_out(policy):
        return None, None
    fields = dict(zip(("param_dtype", "reduce_dtype"), policy.args))
    fields.update((one.arg, one.value) for one in policy.keywords if one.arg is not None)
    return fields.get("param_dtype", _NONE), fields.get("reduce_dtype", _NONE)


def _values(facts: ModuleFacts, given: ast.expr | None) -> list[ast.expr | None]:
    """The expressions that an argument may stand for, None among them where that is not seen."""
    if isinstance(given, ast.Name):
        return [one.value for one in facts.names.bindings(given)] or [None]
    return [given]
