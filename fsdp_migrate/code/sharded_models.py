"""Whether a model is visibly sharded, by FSDP1 or by `fully_shard`."""

from __future__ import annotations

import ast

from fsdp_migrate.code.torch_names import last_words, may_end_in
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.fsdp import MESH
from fsdp_migrate.facts.rebinding import changed_between, place_of

FULLY_SHARD = frozenset(
    {
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard.fully_shard",
    }
)
_WORDS = last_words(FULLY_SHARD)


def is_fully_shard(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call is one of torch's `fully_shard`."""
    callee = call.func
    named = isinstance(callee, (ast.Name, ast.Attribute)) and may_end_in(facts, callee, _WORDS)
    return named and facts.names.qualified(callee) in FULLY_SHARD


def is_sharded(facts: ModuleFacts, model: ast.expr) -> bool:
    """Whether the file builds `model` as an FSDP module, or gives what is written in this way to `fully_shard`."""
    if facts.fsdp.is_instance(model):
        return True
    return ast.unparse(model) in facts.memo(is_sharded, lambda: _given(facts))


def is_somewhere_whole(facts: ModuleFacts) -> bool:
    """Whether the file builds an FSDP model that keeps its parameters whole."""
    return any("NO_SHARD" in ast.unparse(call) for call in facts.fsdp.constructions)


def builds_with_mesh(facts: ModuleFacts) -> bool:
    """Whether the file builds FSDP1 models, all of them with a device mesh."""
    meshes = [next((one.value for one in call.keywords if one.arg == MESH), None) for call in facts.fsdp.constructions]
    return bool(meshes) and all(mesh is not None and not is_literal(mesh, None) for mesh in meshes)


def has_flat_parameters(facts: ModuleFacts) -> bool:
    """Whether the file builds FSDP1 models, all of them without `use_orig_params`."""
    built = facts.fsdp.constructions
    keywords = [keyword for call in built for keyword in call.keywords]
    return bool(built) and all(
        keyword.arg is not None and (keyword.arg != "use_orig_params" or is_literal(keyword.value, False))
        for keyword in keywords
    )


def _given(facts: ModuleFacts) -> frozenset[str]:
    return frozenset(text for _, text in _shardings(facts))


def _shardings(facts: ModuleFacts) -> tuple[tuple[ast.Call, str], ...]:
    """The calls of `fully_shard` with the model as each writes it; they are looked for once."""
    made = (call for call in facts.structure.calls if call.args and is_fully_shard(facts, call))
    return facts.memo(_shardings, lambda: tuple((call, ast.unparse(call.args[0])) for call in made))


def is_sharded_by_then(facts: ModuleFacts, model: ast.expr, at: ast.AST) -> bool:
    """Whether a statement above `at`, which runs whenever `at` does, gives `model` to `fully_shard`."""
    shardings = _shardings(facts)
    text = ast.unparse(model) if shardings else ""
    return any(
        given == text
        and comes_later(facts, facts.statement(call), at)
        and not changed_between(facts, model, place_of(facts.statement(call)), place_of(at))
        for call, given in shardings
    )


def comes_later(facts: ModuleFacts, statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement below this one in its own block holds `node`, in the same function."""
    if facts.function(statement) is not facts.function(node):
        return False
    parent = facts.structure.parents[statement]
    child = node
    while child in facts.structure.parents and facts.structure.parents[child] is not parent:
        child = facts.structure.parents[child]
    return any(
        isinstance(block, list) and statement in block and child in block[block.index(statement) + 1 :]
        for _, block in ast.iter_fields(parent)
    )
