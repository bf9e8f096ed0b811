"""Gradient scalers: `ShardedGradScaler` becomes `torch.amp.GradScaler`, which knows sharded gradients since torch 2.5.

One rank's overflow makes all ranks skip the step in both (found_inf is reduced over the mesh of the gradients).
"""

from __future__ import annotations

import ast
from functools import partial

from fsdp_migrate.code.import_texts import CannotSupply
from fsdp_migrate.code.new_names import spell
from fsdp_migrate.edits import Argument, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_written_out
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion

_NAME = "ShardedGradScaler"
_OLD = frozenset({f"torch.distributed.fsdp.sharded_grad_scaler.{_NAME}", f"torch.distributed.fsdp.{_NAME}"})
_NEW = "torch.amp.GradScaler"
# Since torch 2.3; the new class has the growth factor in front of the backoff factor.
_POSITIONS = ("device", "init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled", "process_group")
_GROUP = "process_group"


def convert_scalers(conversion: Conversion, closure: Closure) -> None:
    """Replace the class of gradient scalers in the modules of a closure."""
    modules = {one.facts.path: one.facts for one in (*closure.references, *closure.passed)}
    modules.update((one.facts.path, one.facts) for one in closure.constructions)
    own = {one.call for one in closure.constructions}
    for facts in modules.values():
        if all(call in own for call in facts.fsdp.constructions):
            for node in facts.memo(_uses, partial(_uses, facts)):
                _convert(conversion, facts, node)


def _uses(facts: ModuleFacts) -> list[ast.Name | ast.Attribute]:
    """Where the class is written."""
    found: list[ast.Name | ast.Attribute] = []
    names = (name for scope in facts.structure.module.nested() for uses in scope.uses.values() for name in uses)
    nodes: list[ast.Name | ast.Attribute] = [*names, *facts.structure.attributes]
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and facts.names.qualified(node) in _OLD and facts.reached(node):
            found.append(node)
    return found


def _convert(conversion: Conversion, facts: ModuleFacts, node: ast.Name | ast.Attribute) -> None:
    try:
        spelled = spell(facts, _NEW, node)
    except CannotSupply as error:
        conversion.wall(facts, node, f"`{_NEW}` is needed here", str(error))
        return
    call = facts.structure.parents[node]
    if isinstance(call, ast.Call) and call.func is node:
        if not _convert_call(conversion, facts, call, spelled.text):
            return
    else:
        conversion.edit(facts, [Replace(facts.source.span(node), spelled.text)])
    conversion.edit(facts, spelled.edits)
    conversion.release(facts, node)


def _convert_call(conversion: Conversion, facts: ModuleFacts, call: ast.Call, name: str) -> bool:
    """Give a new scaler the same arguments by keyword."""
    if not is_written_out(call) or len(call.args) > len(_POSITIONS):
        conversion.wall(facts, call, f"the arguments of `{_NAME}` are not all visible", "write them out")
        return False
    values = dict(zip(_POSITIONS, call.args))
    values.update((one.arg, one.value) for one in call.keywords if one.arg is not None)
    group = values.get(_GROUP)
    if group is not None and not pure(group):
        conversion.wall(facts, group, f"`{_GROUP}` of `{_NAME}` has no counterpart", "evaluate it before the call")
        return False
    arguments = [
        Argument(None if index == 0 else keyword, index)
        for index, keyword in enumerate(_POSITIONS[: len(call.args)])
        if keyword != _GROUP
    ]
    arguments += [
        Argument(one.arg, len(call.args) + index) for index, one in enumerate(call.keywords) if one.arg != _GROUP
    ]
    conversion.edit(facts, [RewriteCall(facts.source.span(call), None, tuple(arguments), callee=name)])
    return True
