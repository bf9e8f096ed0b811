"""FSDP904 and FSDP906: what FSDP1 had, asked of a model under `fully_shard`; and files with the rows of one rank.

Measured on two ranks with torch 2.13: `isinstance(model, FSDP)` is False, `fsdp_modules` gives an empty list,
`summon_full_params` gives shards, `state_dict_type` a dict of DTensors and then a KeyError at its end. `torch.save` of
a sharded state dict on rank 0 writes 6 of 11 rows, and loading it raises nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.sharded_models import is_sharded_by_then
from fsdp_migrate.code.state_dicts.ranks import runs_on_rank_0_only
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_CLASS = "FullyShardedDataParallel"
# Members that models of `fully_shard` lack, and what takes their place.
_MISSING = {
    "no_sync": "call `model.set_requires_gradient_sync(False)` before, and `(True)` behind",
    "clip_grad_norm_": "call `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`",
    "module": "use the model itself: `fully_shard` wraps nothing",
    "_fsdp_wrapped_module": "use the model itself: `fully_shard` wraps nothing",
    "summon_full_params": "call `full_tensor()` on the parameters, on every rank",
}
_STATE = "call `get_model_state_dict` and related functions of `torch.distributed.checkpoint.state_dict`"
# Static methods of FSDP1 that take such a model without an error, or with a late one: what they do, and what to do.
_SILENT = {
    "fsdp_modules": ("gives an empty list", "look for `FSDPModule` among `model.modules()`"),
    "summon_full_params": ("gives the shards of this rank", "call `full_tensor()` on the parameters, on every rank"),
    "state_dict_type": ("does not make the state dict a full one, and ends with a KeyError", _STATE),
    "set_state_dict_type": ("does not make the state dict a full one", _STATE),
    "optim_state_dict": ("fails: it reads the state of FSDP1", _STATE),
    "optim_state_dict_to_load": ("fails: it reads the state of FSDP1", _STATE),
}


def check_idioms(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find uses of FSDP1's members on models that `fully_shard` took in straight line above."""
    yield from _members(facts, card)
    for call in facts.structure.calls:
        found = _call(facts, call)
        if found is not None:
            message, way, severity = found
            yield finding(facts, card, call, facts.statement(call), message, manual(way), severity)


def _members(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    for node in facts.structure.attributes:
        way = _MISSING.get(node.attr)
        if way is None or not isinstance(node.ctx, ast.Load) or not is_sharded_by_then(facts, node.value, node):
            continue
        if not _is_defined(facts, node.attr):
            message = f"`{ast.unparse(node)}` is FSDP1's: a model under `fully_shard` has no `{node.attr}`"
            yield finding(facts, card, node, facts.statement(node), message, manual(way), Severity.BREAKS)


def _is_defined(facts: ModuleFacts, name: str) -> bool:
    """Whether a class of this file may give the model a member of its own, or the file sets one."""
    is_set = any(node.attr == name and not isinstance(node.ctx, ast.Load) for node in facts.structure.attributes)
    return is_set or any(function.name == name for function in facts.structure.functions)


def _call(facts: ModuleFacts, call: ast.Call) -> tuple[str, str, Severity] | None:
    """What is wrong with a call that gets such a model."""
    if not call.args or not is_sharded_by_then(facts, call.args[0], call):
        return None
    model, function = ast.unparse(call.args[0]), ast.unparse(call.func)
    named = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    if named == "builtins.isinstance" and len(call.args) == 2 and facts.fsdp.is_class(call.args[1]):
        message = f"`{ast.unparse(call)}` is False: `fully_shard` makes `{model}` an `FSDPModule`"
        return message, "test for `FSDPModule`", Severity.CHANGES
    if named == "builtins.getattr" and len(call.args) == 3:
        found = look_up(call)
        if found is not None and found.name in _MISSING and not _is_defined(facts, found.name):
            message = f"`{ast.unparse(call)}` is the default: a model under `fully_shard` has no `{found.name}`"
            return message, _MISSING[found.name], Severity.CHANGES
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SILENT and facts.fsdp.is_class(call.func.value):
        does, way = _SILENT[call.func.attr]
        return f"`{function}` of `{model}`, a model under `fully_shard`, {does}", way, Severity.CHANGES
    return None


def check_saves(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find sharded state dicts that rank 0 alone writes by `torch.save`."""
    for call in facts.structure.method_calls.get("save", ()):
        if facts.names.qualified(call.func) != "torch.save" or not call.args or not runs_on_rank_0_only(facts, call):
            continue
        for asked in _state_dicts(facts, call.args[0]):
            model = ast.unparse(asked.func.value)  # type: ignore[attr-defined]
            message = (
                f"`torch.save` writes the rows of rank 0 alone: `{model}.state_dict()` of a model under `fully_shard` "
                "has DTensors"
            )
            way = (
                "call `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))` "
                "on every rank"
            )
            yield finding(facts, card, call, facts.statement(call), message, manual(way))


def _state_dicts(facts: ModuleFacts, saved: ast.expr) -> Iterator[ast.Call]:
    """The calls of `state_dict` on such models whose results are saved as they are."""
    values = [saved, *(saved.values if isinstance(saved, ast.Dict) else ())]
    for value in values:
        made = facts.names.value(value) if isinstance(value, ast.Name) else value
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or made.args:
            continue
        if made.func.attr == "state_dict" and is_sharded_by_then(facts, made.func.value, made):
            yield made


_IMPORT = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP, fully_shard\n\n"
    "fully_shard(model)\n"
)
_URL = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"

IDIOMS = Rule(
    RuleCard(
        code="FSDP904",
        name="fsdp1-idiom-on-fsdp2",
        summary="a member or method of FSDP1 on a model under `fully_shard`",
        explanation="""\
A model under `fully_shard` is not a `FullyShardedDataParallel`. Some members of FSDP1 are missing (`no_sync`,
`clip_grad_norm_`, `module`): an AttributeError, or the default of `getattr`. Others go wrong without an error:
`isinstance(model, FSDP)` is False, `FSDP.fsdp_modules(model)` is empty, `FSDP.summon_full_params(model)` gives the
shards of this rank, `FSDP.state_dict_type(model, ...)` does not make the state dict a full one.

A model is only reported if the same function calls `fully_shard` on it, on every path to the place: code for FSDP1 and
FSDP2 is right to test for both.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(before=_IMPORT + "with model.no_sync():\n    model(batch).sum().backward()\n", torch=">=2.6"),
            Example(before=_IMPORT + "assert isinstance(model, FSDP)\n", torch=">=2.6"),
        ),
        leaves=(
            _IMPORT + "assert isinstance(model, (FSDP, FSDPModule))\n",
            _IMPORT + "assert isinstance(other, FSDP)\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=(
        ("fully_shard", "FullyShardedDataParallel"),
        *(("fully_shard", f"{start}{name}") for name in _MISSING for start in (".", "'", '"')),
    ),
    check=check_idioms,
)

SAVES = Rule(
    RuleCard(
        code="FSDP906",
        name="sharded-state-dict-saved-on-one-rank",
        summary="`torch.save` of a sharded state dict on rank 0",
        explanation="""\
`state_dict()` of a model under `fully_shard` has DTensors with the rows of their rank. `torch.save` on rank 0 writes
only those of rank 0, and loading the file raises no error: the other rows are lost.

`get_model_state_dict` with `full_state_dict=True` gathers the whole state; all ranks have to call it.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + 'if dist.get_rank() == 0:\n    torch.save(model.state_dict(), "model.pt")\n',
                torch=">=2.6",
            ),
        ),
        leaves=(
            _IMPORT + 'torch.save(model.state_dict(), f"model.{dist.get_rank()}.pt")\n',
            _IMPORT + 'if dist.get_rank() == 0:\n    torch.save(other.state_dict(), "model.pt")\n',
        ),
        url=_URL,
    ),
    scope="models",
    words=(("fully_shard", ".save", ".state_dict"),),
    check=check_saves,
)
