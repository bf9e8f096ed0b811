"""Which state-dict type is set where: the `with FSDP.state_dict_type(...)` blocks around a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_migrate.facts.fsdp import TypeSetting

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
        for call in ast.walk(statement):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr == "set_state_dict_type":
                yield None
            on_stack = isinstance(call.func.value, ast.Name) and call.func.value.id in stacks
            if call.func.attr == "enter_context" and on_stack and call.args:
                unconditional = isinstance(statement, (ast.Expr, ast.Assign))
                yield facts.fsdp.setting(call.args[0]) if unconditional else None


def matching_context(
    facts: ModuleFacts, node: ast.AST, model: ast.expr, type_name: str, rank0_only: str | None
) -> bool:
    """Whether the type and optimizer config in force at `node` are exactly these, and written out.

    `rank0_only` is the text of the wanted value under FULL_STATE_DICT, None under SHARDED_STATE_DICT. Only the
    innermost setting counts, and only if the model in it has not been bound anew since.
    """
    setting = next(enclosing_settings(facts, node), None)
    if setting is None or setting.type_name != type_name or not facts.fsdp.same_object(setting.model, model):
        return False
    if _rebound_between(facts, setting.call, node, model) or setting.call.args[4:]:
        return False
    if rank0_only is None:
        return setting.optim_config is None or _fields(facts, setting.optim_config) == {"offload_to_cpu": "True"}
    if setting.optim_config is None:
        return False
    wanted = {"offload_to_cpu": "True", "rank0_only": rank0_only}
    return _fields(facts, setting.optim_config) == wanted


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


def _rebound_between(facts: ModuleFacts, call: ast.Call, node: ast.AST, model: ast.expr) -> bool:
    root = model
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return True
    home = facts.scope(node).lookup(root.id)
    first, last = (call.lineno, call.col_offset), (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    return home is not None and any(first < binding.position < last for binding in home.bindings[root.id])
