"""Whether a model is visibly sharded, by FSDP1 or by `fully_shard`."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts

FULLY_SHARD = frozenset(
    {
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard.fully_shard",
    }
)


def is_fully_shard(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call is one of torch's `fully_shard`."""
    return isinstance(call.func, (ast.Name, ast.Attribute)) and facts.names.qualified(call.func) in FULLY_SHARD


def is_sharded(facts: ModuleFacts, model: ast.expr) -> bool:
    """Whether the file builds `model` as an FSDP module, or gives what is written in this way to `fully_shard`."""
    if facts.fsdp.is_instance(model):
        return True
    return ast.unparse(model) in facts.memo(is_sharded, lambda: _given(facts))


def _given(facts: ModuleFacts) -> frozenset[str]:
    return frozenset(ast.unparse(c.args[0]) for c in facts.structure.calls if c.args and is_fully_shard(facts, c))
