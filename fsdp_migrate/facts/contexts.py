"""The state-dict types in force at a place: the `with FSDP.state_dict_type(...)` blocks around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.calls import is_written_out
from fsdp_migrate.facts.evaluation import is_reading
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.facts.rebinding import changed_between, place_of
from fsdp_migrate.facts.scopes import TRIES

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

# Context managers that certainly leave the state-dict type alone.
_NEUTRAL = frozenset(
    """
    torch.no_grad torch.inference_mode torch.enable_grad builtins.open contextlib.nullcontext contextlib.suppress
    warnings.catch_warnings torch.autocast torch.cuda.device torch.device
    torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params
    """.split()
)


# Calls that code makes under a state-dict type and that leave it as it is.
_SETTLED = frozenset(
    """
    optim_state_dict optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict
    shard_full_optim_state_dict scatter_full_optim_state_dict flatten_sharded_optim_state_dict rekey_optim_state_dict
    load_state_dict barrier log info debug warning
    """.split()
)


def enclosing_settings(facts: ModuleFacts, node: ast.AST) -> Iterator[TypeSetting | None]:
    """The settings in force at `node` within its function, innermost first.

    None stands for an unknown context manager, which might set the type.
    """
    child, function = node, facts.function(node)
    while child is not function and child in facts.structure.parents:
        parent = facts.structure.parents[child]
        if isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
            for item in reversed(parent.items):
                yield from _managed(facts, item.context_expr)
        child = parent


def _managed(facts: ModuleFacts, manager: ast.expr) -> Iterator[TypeSetting | None]:
    if isinstance(manager, ast.Name):
        manager = facts.names.value(manager) or manager
    setting = facts.fsdp.setting(manager)
    if setting is not None:
        yield setting
        return
    function = manager.func if isinstance(manager, ast.Call) else manager
    if facts.names.qualified(function) not in _NEUTRAL:
        yield None


def is_in_force(facts: ModuleFacts, setting: TypeSetting, node: ast.AST) -> bool:
    """Whether the type of a context manager is in force at `node`, as far as the function shows."""
    item = facts.structure.parents[setting.call]
    if isinstance(item, ast.withitem):
        return facts.structure.parents[item] in facts.blocks_around(node)
    return facts.function(setting.call) is facts.function(node) and place_of(setting.call) < place_of(node)


def matching_context(
    facts: ModuleFacts, node: ast.Call, model: ast.expr, type_name: str, rank0_only: str | None
) -> bool:
    """Whether the `with` around `node` sets exactly this type and optimizer config, as literals.

    `rank0_only` is the text of the wanted value under FULL_STATE_DICT, None under SHARDED_STATE_DICT. Nothing before
    `node` in the block may set another type.
    """
    parents, statement = facts.structure.parents, facts.statement(node)
    block = parents[statement]
    setting = next(enclosing_settings(facts, node), None)
    if setting is None or parents.get(parents[setting.call]) is not block or not isinstance(block, ast.With):
        return False
    if setting.type_name != type_name or not facts.fsdp.same_object(setting.model, model):
        return False
    if not is_written_out(setting.call) or len(setting.call.args) > 4 or not _fits(facts, setting, rank0_only):
        return False
    inside = set(ast.walk(node))
    before = block.body[: block.body.index(statement) + 1]
    others = [part for one in before for part in ast.walk(one) if part not in inside]
    return not any(_may_set(facts, part) for part in others) and not changed_between(
        facts, model, place_of(setting.call), place_of(node)
    )


def _may_set(facts: ModuleFacts, part: ast.AST) -> bool:
    """Whether something may set a type, or let other code do so meanwhile."""
    if not isinstance(part, ast.Call):
        return isinstance(part, (ast.Await, ast.Yield, ast.YieldFrom, ast.GeneratorExp, ast.Lambda, *TRIES))
    name = getattr(part.func, "attr", getattr(part.func, "id", ""))
    return name not in _SETTLED and not is_reading(part, facts.names)


def _fits(facts: ModuleFacts, setting: TypeSetting, rank0_only: str | None) -> bool:
    """Whether the optimizer config, a literal, has the wanted fields (defaults: torch 2.1 to 2.15, api.py)."""
    if setting.optim_config is None:
        return rank0_only is None
    config = facts.fsdp.config(setting.optim_config) if isinstance(setting.optim_config, ast.Call) else None
    full = rank0_only is not None
    if config is None or config.cls != ("FullOptimStateDictConfig" if full else "ShardedOptimStateDictConfig"):
        return False
    fields = {name: ast.unparse(value) for name, value in config.fields.items()}
    wanted = {"offload_to_cpu": "True", **({"rank0_only": rank0_only} if full else {})}
    return {"offload_to_cpu": "True", **({"rank0_only": "False"} if full else {}), **fields} == wanted
