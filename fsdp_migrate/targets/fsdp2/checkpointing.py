"""Activation checkpointing gives the same with FSDP2 but for one case: the reentrant one behind frozen parameters.

Measured on two ranks with torch 2.9, 2.13 and 2.15, before and after wrapping, inside and outside of units, in float32
and bfloat16, with dropout and accumulation: losses, parameters and the number of hook calls are equal, reentrant or
not. But where FSDP1 flattens frozen parameters with trainable ones, what they compute has a gradient. With FSDP2 it has
none, and a reentrant checkpoint whose inputs have no gradient gives none to the parameters inside.
"""

from __future__ import annotations

import ast
from functools import partial

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion
from fsdp_migrate.targets.fsdp2.reachable import reachable
from fsdp_migrate.targets.fsdp2.said import flattens
from fsdp_migrate.targets.fsdp2.unused_functions import modules_of

_FUNCTIONS = tuple(f"torch.utils.checkpoint.{name}" for name in ("checkpoint", "checkpoint_sequential"))
_REENTRANT = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointImpl.REENTRANT"
_FREEZING = (b"requires_grad = False", b"requires_grad=False", b"requires_grad_(False", b"get_peft_model")
_WHAT = (
    "reentrant checkpointing gives no gradient where nothing in front requires one; FSDP1 gives outputs of frozen "
    "parameters one if their unit has trainable ones (`use_reentrant=False` avoids it)"
)


def check_checkpointing(conversion: Conversion, closure: Closure) -> None:
    """Note checkpoints that may have only frozen parameters in front of them."""
    if flattens(closure):
        return  # FSDP1 takes frozen parameters in units of their own only
    near = {one.path: one for home in modules_of(closure) for one in reachable(home)}.values()
    if not any(word in one.source.data for one in near for word in _FREEZING):
        return
    for facts in near:
        if b"heckpoint" in facts.source.data:
            for node in facts.memo(_reentrant, partial(_reentrant, facts)):
                conversion.differs(facts, node, _WHAT)


def _reentrant(facts: ModuleFacts) -> list[ast.expr]:
    """The places that ask for reentrant checkpoints."""
    found: list[ast.expr] = []
    for call in facts.structure.calls:
        if isinstance(call.func, (ast.Name, ast.Attribute)) and facts.names.qualified(call.func) in _FUNCTIONS:
            given = [one.value for one in call.keywords if one.arg == "use_reentrant"]
            if not any(is_literal(one, False) for one in given):
                found.append(call)
    for node in facts.structure.attributes:
        if node.attr == "REENTRANT" and facts.names.qualified(node) == _REENTRANT:
            found.append(node)
    return found
