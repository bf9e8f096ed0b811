"""Which state-dict type is set where: the `with FSDP.state_dict_type(...)` blocks around a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.calls import is_written_out
from fsdp_migrate.facts.changes import changed_between, place_of
from fsdp_migrate.facts.evaluation import is_neutral, is_reading
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.facts.scopes import TRIES

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

# Context managers that certainly leave the state-dict type alone.
_NEUTRAL = frozenset(
    """
    torch.no_grad torch.inference_mode torch.enable_grad builtins.open contextlib.nullcontext contextlib.suppress
    contextlib.ExitStack warnings.catch_warnings torch.autocast torch.cuda.device torch.device
    torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params
    """.split()
)


_SETTING_METHODS = ("set_state_dict_type", "state_dict_type", "__enter__")
# Calls that code makes under a state-dict type and that leave it as it is.
_SETTLED = frozenset(
    """
    optim_state_dict optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict
    shard_full_optim_state_dict scatter_full_optim_state_dict flatten_sharded_optim_state_dict rekey_optim_state_dict
    FullOptimStateDictConfig FullStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig
    load_state_dict save_state_dict load_sharded_optimizer_state_dict FileSystemReader FileSystemWriter
    barrier log info debug warning
    """.split()
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def enclosing_settings(facts: ModuleFacts, node: ast.AST) -> Iterator[TypeSetting | None]:
    """The settings in force at `node` within its function, innermost first.

    None stands for a context manager that is not known and might set the type.
    """
    child, function = node, facts.function(node)
    while child is not function and child in facts.structure.parents:
        parent = facts.structure.parents[child]
        if isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
            before = parent.body[: parent.body.index(child)]
            yield from _entered(facts, parent, before)
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


def _entered(
    facts: ModuleFacts, block: ast.With | ast.AsyncWith, statements: list[ast.stmt]
) -> Iterator[TypeSetting | None]:
    """Settings entered on the block's exit stack by the statements before, the latest first."""
    stacks = {item.optional_vars.id for item in block.items if isinstance(item.optional_vars, ast.Name)}
    for statement in reversed(statements):
        entered = _entered_on(statement, stacks)
        if entered is not None:
            yield from _managed(facts, entered)
            continue
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                on_stack = isinstance(call.func.value, ast.Name) and call.func.value.id in stacks
                if on_stack or call.func.attr in _SETTING_METHODS:
                    yield None


def _entered_on(statement: ast.stmt, stacks: set[str]) -> ast.expr | None:
    """The context manager of a plain `stack.enter_context(manager)` statement."""
    call = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    on_stack = isinstance(call.func.value, ast.Name) and call.func.value.id in stacks
    return call.args[0] if on_stack and call.func.attr == "enter_context" else None


def matching_context(
    facts: ModuleFacts, node: ast.Call, model: ast.expr, type_name: str, rank0_only: str | None
) -> bool:
    """Whether the type and optimizer config in force at `node` are exactly these, and written out.

    `rank0_only` is the text of the wanted value under FULL_STATE_DICT, None under SHARDED_STATE_DICT. Only the
    innermost setting counts, and only if nothing between it and `node` could have set another.
    """
    setting = next(enclosing_settings(facts, node), None)
    if setting is None or setting.type_name != type_name or not facts.fsdp.same_object(setting.model, model):
        return False
    if not is_written_out(setting.call) or len(setting.call.args) > 4 or not _undisturbed(facts, setting, node, model):
        return False
    if rank0_only is None:
        return setting.optim_config is None or _fields(facts, setting.optim_config) == {"offload_to_cpu": "True"}
    if setting.optim_config is None or (
        rank0_only not in ("True", "False") and isinstance(setting.optim_config, ast.Name)
    ):
        return False
    wanted = {"offload_to_cpu": "True", "rank0_only": rank0_only}
    return _fields(facts, setting.optim_config) == wanted


def _undisturbed(facts: ModuleFacts, setting: TypeSetting, node: ast.Call, model: ast.expr) -> bool:
    """Whether nothing that runs between the entry of `setting` and `node` can set a type or bind the names anew."""
    block = _block_of(facts, setting.call)
    if block is None:
        return False
    region: list[ast.AST] = []
    child: ast.AST = node
    while child is not block:
        parent = facts.structure.parents[child]
        if isinstance(parent, (*TRIES, ast.GeneratorExp)):
            return False
        if isinstance(parent, _LOOPS):
            region.extend(ast.walk(parent))
        child = parent
    here, inside = place_of(node), set(ast.walk(node))
    region += [n for statement in block.body for n in ast.walk(statement) if getattr(n, "lineno", 0) <= here[0]]
    disturbing = (
        part
        for part in region
        if part not in inside and (isinstance(part, TRIES) or _may_set(facts, part, setting.call))
    )
    names = [model, *(k.value for k in setting.call.keywords), *setting.call.args]
    return next(disturbing, None) is None and not any(
        changed_between(facts, name, place_of(setting.call), here) for name in names
    )


def _may_set(facts: ModuleFacts, part: ast.AST, entry: ast.Call) -> bool:
    if isinstance(part, (ast.Await, ast.Yield, ast.YieldFrom)):
        return True
    if (
        not isinstance(part, ast.Call)
        or part is entry
        or is_neutral(part, facts.names)
        or is_reading(part, facts.names)
    ):
        return False
    name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
    return not (name in _SETTLED or (name == "enter_context" and entry in part.args))


def _block_of(facts: ModuleFacts, call: ast.Call) -> ast.With | ast.AsyncWith | None:
    """The `with` statement that `call` is entered by, directly or as the statement of an exit stack in it."""
    parents = facts.structure.parents
    parent = parents[call]
    if isinstance(parent, ast.withitem):
        block = parents[parent]
    elif isinstance(parent, ast.Call):
        block = parents[facts.statement(parent)]
    else:
        return None
    return block if isinstance(block, (ast.With, ast.AsyncWith)) else None


_CONFIG_DEFAULTS = {
    "FullOptimStateDictConfig": {"offload_to_cpu": "True", "rank0_only": "False"},
    "ShardedOptimStateDictConfig": {"offload_to_cpu": "True"},
}


def _fields(facts: ModuleFacts, node: ast.expr) -> dict[str, str] | None:
    """All fields of an optimizer config as text, defaults filled in (torch 2.1 to 2.15, api.py)."""
    config = facts.fsdp.config(node)
    if config is None or config.cls not in _CONFIG_DEFAULTS:
        return None
    return _CONFIG_DEFAULTS[config.cls] | {name: ast.unparse(value) for name, value in config.fields.items()}
