"""Parameters that are unfrozen after the model ran: FSDP2 fails at the next backward where `param_dtype` is set.

Seen on torch 2.13 (pytorch#186998): a RuntimeError for what was frozen in the first forward.
"""

from __future__ import annotations

import ast

from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.targets.fsdp2.said import computes_as_stored, gives_no_precision
from fsdp_migrate.targets.fsdp2.use import Use

_STEP = "set `requires_grad` before the model is wrapped, or train without mixed precision"

# Source: torch 2.13 _fsdp_param_group.py, `_init_mp_dtypes`: `reduce_dtype` is set where something was trainable.
_REDUCED = "gradients of what was frozen when the model first ran are reduced in their own dtype, not in `reduce_dtype`"


def check_unfreezing(use: Use, node: ast.AST) -> None:
    """There is a wall where parameters may be unfrozen after the model has run with `param_dtype`."""
    if gives_no_precision(use.closure) or _comes_first(use, node):
        return
    if computes_as_stored(use.closure):
        use.differs(_REDUCED, node)
    else:
        use.wall("parameters may be unfrozen after the model ran in mixed precision", _STEP, node)


def _comes_first(use: Use, node: ast.AST) -> bool:
    """Whether a model is built above in the same function, and nothing runs it in between or in a loop around."""
    facts = use.facts
    function = facts.function(node)
    built = [one.call for one in use.closure.constructions if one.facts is facts]
    above = [one for one in built if facts.function(one) is function and place_of(one) < place_of(node)]
    if not above or use.method is not None:
        return False
    first = min(map(place_of, above))
    around = [one for one in facts.blocks_around(node) if isinstance(one, (ast.For, ast.AsyncFor, ast.While))]
    inside = {part for loop in around for part in ast.walk(loop)}
    runs = [one.node for one in use.closure.passed if one.facts is facts and _may_run(use, one.node)]
    runs += [one.node for one in use.closure.references if one.facts is facts and _may_run(use, one.node)]
    own = (one for one in runs if facts.function(one) is function)
    return not any(one in inside or first < place_of(one) < place_of(node) for one in own)


def _may_run(use: Use, node: ast.expr) -> bool:
    """Whether the model is called, or given to a function."""
    parent = use.facts.structure.parents.get(node)
    return isinstance(parent, (ast.Call, ast.keyword))
