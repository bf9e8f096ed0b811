"""FSDP717: full state dicts that go into sharded models as they are.

Run on two ranks with torch 2.13: `set_model_state_dict` without `full_state_dict=True` raises for FSDP1 ("Expected
ShardedTensor", "no attribute 'device_mesh'") and FSDP2 ("mixed torch.Tensor and DTensor"), `strict=False` or not. After
`load_state_dict(..., assign=True)` FSDP2 has whole tensors ("'Parameter' object has no attribute '_local_tensor'").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.sharded_models import is_sharded_by_then, is_somewhere_whole
from fsdp_migrate.code.state_dicts.new_calls import (
    STATE_DICT,
    URL,
    is_filled,
    is_on,
    item_of,
    new_calls,
    works_on_shards,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_GATHERING = ("get_model_state_dict", "get_state_dict")
_LOAD_FILE = "safetensors.torch.load_file"
_PATHS = frozenset({"os.path.join", "pathlib.Path"})
_WAY = "`options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`"
_MOST_STEPS = 6


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find loads of dicts that are visibly full into models that are visibly sharded."""
    for new in new_calls(facts):
        model, given = new.arguments.get("model"), new.arguments.get("model_state_dict")
        if new.function != "set_model_state_dict" or model is None or given is None or not works_on_shards(facts, new):
            continue
        is_fsdp1 = facts.fsdp.is_instance(model) and not is_somewhere_whole(facts)
        if (is_fsdp1 or is_sharded_by_then(facts, model, new.call)) and _is_full(facts, given, _MOST_STEPS):
            message = (
                f"`{ast.unparse(given)}` is a full state dict: without `full_state_dict=True` "
                f"`{new.function}` takes shards, and raises"
            )
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(f"pass {_WAY}"))
    for call in facts.structure.method_calls.get("load_state_dict", ()):
        assert isinstance(call.func, ast.Attribute)
        model, given = call.func.value, _first(call)
        if given is None or not facts.reached(call) or not is_sharded_by_then(facts, model, call):
            continue
        if _is_full(facts, given, _MOST_STEPS):
            text = ast.unparse(model)
            assigned = any(one.arg == "assign" and not is_literal(one.value, False) for one in call.keywords)
            effect = "whole tensors replace its shards, and it cannot run" if assigned else "it raises"
            message = f"`{ast.unparse(given)}` is a full state dict, and `{text}` has been sharded: {effect}"
            way = f"call `set_model_state_dict(model, state, ...)` with {_WAY}, or load it before `fully_shard`"
            yield finding(facts, card, call, facts.statement(call), message, manual(way))


def _first(call: ast.Call) -> ast.expr | None:
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((one.value for one in call.keywords if one.arg == "state_dict"), None)


def _is_full(facts: ModuleFacts, node: ast.expr, steps: int) -> bool:
    """Whether every tensor of a state dict is visibly whole: gathered, or read from a file that all ranks read."""
    if steps == 0:
        return False
    if isinstance(node, ast.Name):
        if is_filled(facts, node):
            return False
        values = [binding.value for binding in facts.names.bindings(node)]
        return bool(values) and all(value is not None and _is_full(facts, value, steps - 1) for value in values)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.value, ast.Name):
        held = None if is_filled(facts, node.value) else facts.names.value(node.value)
        if isinstance(held, ast.Dict):
            item = item_of(held, node.slice.value)
            return item is not None and _is_full(facts, item, steps - 1)
        return isinstance(held, ast.Call) and _is_read(facts, held)
    if not isinstance(node, ast.Call):
        return False
    return _is_read(facts, node) or any(
        new.call is node and new.function in _GATHERING and is_on(new.option(facts, "full_state_dict"))
        for new in new_calls(facts)
    )


def _is_read(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call reads a file of whole tensors: of safetensors, or one of `torch.save` that is there once."""
    path = call.args[0] if call.args else None
    qualified = facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    return qualified == _LOAD_FILE or (
        qualified == "torch.load" and path is not None and _is_one_path(facts, path, _MOST_STEPS)
    )


def _is_one_path(facts: ModuleFacts, node: ast.expr, steps: int) -> bool:
    """Whether a path is written out, so that every rank reads the same file."""
    if isinstance(node, ast.Constant):
        return True
    if steps == 0:
        return False
    parts: list[ast.expr]
    if isinstance(node, ast.Name):
        parts = facts.names.definitions(node)
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        parts = node.args if facts.names.qualified(node.func) in _PATHS else []
    else:
        return False
    return bool(parts) and all(_is_one_path(facts, part, steps - 1) for part in parts)


_IMPORT = f"""\
import torch
from {STATE_DICT} import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

"""
_OPTIONS = "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
_PLAIN_LOAD = "model.load_state_dict(weights)\n"
_READ = 'weights = torch.load("model.pt", mmap=True)\n'

RULE = Rule(
    RuleCard(
        code="FSDP717",
        name="full-dict-into-shards",
        summary="a full state dict that is loaded into a sharded model as if it were shards",
        explanation="""\
`set_model_state_dict` expects the shards of this rank unless its options say `full_state_dict=True`. For whole tensors
it raises, with FSDP1 ("Expected ShardedTensor") and with FSDP2 ("mixed torch.Tensor and DTensor"). `strict=False` does
not help.

After `fully_shard` the parameters are DTensors, so `model.load_state_dict` of whole tensors raises, too. With
`assign=True` it does not: the tensors replace the shards, and the model fails when it runs next. Load before
`fully_shard`, or with `set_model_state_dict`, which takes the shards out of them.

Reported if the dict is visibly full: gathered with `full_state_dict=True`, or read from a file of safetensors, or from
one with a literal path. FSDP1's own `load_state_dict` accepts full dicts unless a type is set, and is not reported.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + "model = FSDP(net)\n" + _READ + "set_model_state_dict(model, weights)\n"),
            Example(before=_IMPORT + "fully_shard(model)\n" + _READ + _PLAIN_LOAD, torch=">=2.6"),
        ),
        leaves=(
            _IMPORT
            + "model = FSDP(net)\n"
            + _READ
            + f"set_model_state_dict(model, weights, options={_OPTIONS})\nmodel.load_state_dict(weights)\n",
            _IMPORT + _READ + "model.load_state_dict(weights)\nfully_shard(model)\n",
            _IMPORT + "model = FSDP(net)\n" + 'set_model_state_dict(model, torch.load(f"model-{rank}.pt"))\n',
        ),
        url=URL,
    ),
    words=("set_model_state_dict", ("fully_shard", ".load_state_dict")),
    check=check,
    scope="distributed",
)
