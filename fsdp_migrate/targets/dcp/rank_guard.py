"""FSDP713: checkpoint functions that only some of the ranks get to, while all have to.

Measured on two ranks with torch 2.13: `get_*_state_dict` of a sharded model gathers, `set_*_state_dict` with
`broadcast_from_rank0` broadcasts, `save` and `load` plan together. Whoever is alone there waits for the others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fsdp_migrate.code.sharded_models import is_sharded
from fsdp_migrate.code.state_dicts.new_calls import (
    GETTERS,
    SETTERS,
    URL,
    NewCall,
    full_names,
    is_on,
    new_calls,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.exits import leaves
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.patterns import pattern
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_STORING = ("save", "load", "async_save")
_RANKS = frozenset({"rank", "_rank", "global_rank", "world_rank", "local_rank", "RANK", "LOCAL_RANK"})
_GET_RANK = "torch.distributed.get_rank"
_PREDICATE = pattern(r"_?is_(main|master|global_zero|rank_?(0|zero)|local_main|local_master)(_process|_rank|_proc)?")
_ONLY_ONE = frozenset({"rank_zero_only", "rank0_only", "on_main_process", "main_process_only"})


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls behind a test of the rank that the other ranks do not make too."""
    for new in new_calls(facts):
        if not _is_collective(facts, new):
            continue
        guard = _guard(facts, new)
        if guard is None:
            continue
        message = f"`{new.function}` needs all ranks, but only some reach it ({guard}): they wait for the others"
        way = "call it on every rank; only what one rank does with the result belongs under the test"
        if new.function in _STORING:
            way = "call it on every rank, or pass `no_dist=True` (torch 2.7) if one process does it alone"
        yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


def _is_collective(facts: ModuleFacts, new: NewCall) -> bool:
    if not new.is_whole:
        return False
    if new.function in _STORING:
        return "no_dist" not in new.arguments and "process_group" not in new.arguments
    if new.function in SETTERS and is_on(new.option(facts, "broadcast_from_rank0")):
        return True
    model = new.arguments.get("model")
    # A setter without a broadcast takes shards, or cuts them out of a full dict, on its own.
    return new.function in GETTERS and model is not None and _gathers(facts, new) and is_sharded(facts, model)


def _gathers(facts: ModuleFacts, new: NewCall) -> bool:
    return is_on(new.option(facts, "full_state_dict"))


def _guard(facts: ModuleFacts, new: NewCall) -> str | None:
    """The test that keeps some ranks away from a call, as a text; None where all may get there."""
    child: ast.AST = new.call
    parents = facts.structure.parents
    while child in parents:
        parent = parents[child]
        if isinstance(parent, ast.If) and child is not parent.test and _tells(facts, parent.test):
            other = parent.orelse if child in parent.body else parent.body
            rest = _behind(parents, parent) if leaves(parent.body) else ()
            if not _has_counterpart(facts, new, (*other, *rest)):
                return f"under `if {ast.unparse(parent.test)}` in line {parent.lineno}"
            return None
        if isinstance(child, ast.stmt):
            for before in _before(parent, child):
                if not isinstance(before, ast.If) or before.orelse or not leaves(before.body):
                    continue
                if _tells(facts, before.test):
                    if not _has_counterpart(facts, new, before.body):
                        return f"after `if {ast.unparse(before.test)}` in line {before.lineno}"
                    return None
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            only = (one for one in parent.decorator_list if _last_name(one) in _ONLY_ONE)
            return next((f"under `@{ast.unparse(one)}` in line {one.lineno}" for one in only), None)
        if isinstance(parent, (ast.Lambda, ast.ClassDef)):
            return None
        child = parent
    return None


def _before(parent: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and statement in block:
            return block[: block.index(statement)]
    return []


def _behind(parents: dict[ast.AST, ast.AST], statement: ast.stmt) -> list[ast.stmt]:
    for _, block in ast.iter_fields(parents[statement]):
        if isinstance(block, list) and statement in block:
            return block[block.index(statement) + 1 :]
    return []


def _has_counterpart(facts: ModuleFacts, new: NewCall, others: tuple[ast.stmt, ...] | list[ast.stmt]) -> bool:
    """Whether the ranks that do not get to a call make one of their own, here or in a function that they call."""
    calls = [part for statement in others for part in ast.walk(statement) if isinstance(part, ast.Call)]
    own = {id(one.call) for one in new_calls(facts)}
    return any(id(call) in own or _last_name(call.func).endswith(new.function) for call in calls)


def _tells(facts: ModuleFacts, test: ast.expr) -> bool:
    """Whether a test holds on some of several ranks and fails on others."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _tells(facts, test.operand)
    if isinstance(test, ast.BoolOp):
        told = [_tells(facts, value) for value in test.values]
        if isinstance(test.op, ast.And):
            return any(told) and not any("world" in ast.unparse(value) for value in test.values)
        return all(one or _is_alone(value) for one, value in zip(told, test.values)) and any(told)
    if isinstance(test, ast.Compare):
        sides = (test.left, *test.comparators)
        is_plain = len(sides) == 2 and isinstance(test.ops[0], (ast.Eq, ast.NotEq))
        zero = any(isinstance(side, ast.Constant) and type(side.value) is int for side in sides)
        return is_plain and zero and any(_is_rank(facts, side) for side in sides)
    func = test.func if isinstance(test, ast.Call) else test
    return _PREDICATE.fullmatch(_last_name(func)) is not None


def _is_alone(test: ast.expr) -> bool:
    """Whether a test holds only where there is no group of processes."""
    return (
        isinstance(test, ast.UnaryOp)
        and isinstance(test.op, ast.Not)
        and re.search(r"is_(initialized|available)|distributed", ast.unparse(test)) is not None
    )


def _is_rank(facts: ModuleFacts, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return not node.args and not node.keywords and facts.names.qualified(node.func) == _GET_RANK
    if isinstance(node, ast.Name):
        values = facts.names.definitions(node)
        if any(isinstance(value, ast.Call) for value in values):
            return all(_is_rank(facts, value) or _is_environment(facts, value) for value in values)
    return isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in _RANKS


def _is_environment(facts: ModuleFacts, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and re.search(r"environ|getenv", ast.unparse(node)) is not None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


_IMPORT = """\
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
_FULL = "StateDictOptions(full_state_dict=True)"

RULE = Rule(
    RuleCard(
        code="FSDP713",
        name="checkpoint-on-some-ranks",
        summary="a checkpoint function that needs all ranks, under a test of the rank",
        explanation="""\
`dcp.save`, `dcp.load` and `dcp.async_save` communicate with all ranks. `get_model_state_dict`,
`get_optimizer_state_dict` and `get_state_dict` with `full_state_dict=True` gather a sharded model. `set_*_state_dict`
with `broadcast_from_rank0=True` broadcasts, whether or not the model is sharded. Under `if rank == 0` the rank that
makes the call waits for the others until the group's timeout, or is paired with their next collective.

Make the call on every rank, and put only the write under the test. If one process reads or writes alone, pass
`no_dist=True` to `dcp` (torch 2.2 and since 2.7; the releases between do not have it).""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + "if dist.get_rank() == 0:\n    dcp.save(state, checkpoint_id=path)\n"),
            Example(
                before=_IMPORT
                + f"model = FSDP(net)\nif rank == 0:\n    state = get_model_state_dict(model, options={_FULL})\n"
            ),
        ),
        leaves=(
            _IMPORT + "if dist.get_rank() == 0:\n    dcp.save(state, checkpoint_id=path, no_dist=True)\n",
            _IMPORT
            + f"model = FSDP(net)\nstate = get_model_state_dict(model, options={_FULL})\n"
            + "if rank == 0:\n    torch.save(state, path)\n",
        ),
        url=URL,
    ),
    words=(*GETTERS, *SETTERS),
    check=check,
    scope="distributed",
    names=lambda: full_names(*_STORING),
)
