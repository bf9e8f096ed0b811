"""FSDP905 and FSDP908: gradients of FSDP2 that are reduced on one rank alone, or on none.

Measured on two ranks with torch 2.13: `p.grad.norm().item()` gives this rank's part (0.174 for 0.197); with gradient
sync off `p.grad` stays None and `step()` does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.code.sharded_models import is_sharded
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_SYNC = "set_requires_gradient_sync"
_REDUCTIONS = frozenset({"norm", "sum", "mean", "max", "min"})
_PARAMETERS = frozenset({"parameters", "named_parameters"})


def check_local(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find numbers that are read off a reduction of one parameter, or its gradient, of a model under `fully_shard`."""
    for call in facts.structure.calls:
        reduced = _read(facts, call)
        reduction = None if reduced is None else _reduction(reduced)
        if reduced is None or reduction is None:
            continue
        root = _root(reduced)
        if root is not None and _is_parameter(facts, root) and not _is_whole(reduced):
            message = (
                f"`{ast.unparse(call)}` is the number of this rank alone: `{reduction}` of a DTensor is not reduced "
                "over the ranks"
            )
            way = "call `.full_tensor()` on the result first, on every rank: it reduces over the ranks"
            yield finding(facts, card, call, facts.statement(call), message, manual(way))


def _read(facts: ModuleFacts, call: ast.Call) -> ast.expr | None:
    """What a call reads a number off: `X` of `X.item()` and `float(X)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "item" and not call.args:
        return call.func.value
    if len(call.args) == 1 and not call.keywords and isinstance(call.func, ast.Name) and call.func.id == "float":
        return call.args[0] if facts.names.qualified(call.func) == "builtins.float" else None
    return None


def _reduction(node: ast.expr) -> str | None:
    """The method that makes one number of a tensor, at the end of a chain."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "cpu"):
        node = node.func.value
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if not is_method or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    return node.func.attr if node.func.attr in _REDUCTIONS and not node.keywords else None


def _root(node: ast.expr) -> ast.Name | None:
    while isinstance(node, (ast.Call, ast.Attribute)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


def _is_whole(node: ast.expr) -> bool:
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return any(part.attr in ("full_tensor", "to_local", "redistribute", "shape", "numel") for part in parts)


def _is_parameter(facts: ModuleFacts, name: ast.Name) -> bool:
    """Whether a name is what a loop over the parameters of a sharded model binds."""
    for loop in facts.blocks_around(name):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute):
            bound = [part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
            if name.id in bound:
                owner = loop.iter.func
                is_own = all(one.kind is Kind.OTHER for one in facts.names.bindings(name))
                return is_own and owner.attr in _PARAMETERS and _is_under_fsdp2(facts, owner.value)
    return False


def _is_under_fsdp2(facts: ModuleFacts, model: ast.expr) -> bool:
    return not facts.fsdp.is_instance(model) and is_sharded(facts, model)


def check_sync(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find gradient sync that is turned off in a file that trains and never turns it on."""
    calls = facts.structure.method_calls.get(_SYNC, ())
    if not calls or not all(len(call.args) == 1 and is_literal(call.args[0], False) for call in calls):
        return
    if any(call.keywords for call in calls) or not _trains(facts) or _is_mentioned_elsewhere(facts, calls):
        return
    for call in calls:
        if facts.reached(call):
            message = f"`{_SYNC}(False)` is never undone: `grad` stays None, and `step()` changes nothing"
            way = f"call `{_SYNC}(True)` before the backward pass of the last micro-batch"
            yield finding(facts, card, call, facts.statement(call), message, manual(way))


def _is_mentioned_elsewhere(facts: ModuleFacts, calls: list[ast.Call] | tuple[ast.Call, ...]) -> bool:
    """Whether the setter is passed on, or named as a string."""
    called = {id(call.func) for call in calls}
    passed = any(node.attr == _SYNC and id(node) not in called for node in facts.structure.attributes)
    named = any(constant.value == _SYNC for constant in facts.structure.strings)
    return passed or named or any(function.name == _SYNC for function in facts.structure.functions)


def _trains(facts: ModuleFacts) -> bool:
    steps = facts.structure.method_calls.get("step", ())
    is_stepped = any(isinstance(one.func, ast.Attribute) and is_called_optimizer(one.func.value) for one in steps)
    return is_stepped and "backward" in facts.structure.method_calls


_IMPORT = "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n"
_URL = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"

LOCAL = Rule(
    RuleCard(
        code="FSDP905",
        name="local-reduction-of-sharded-tensor",
        summary="a number read from a reduction of one sharded parameter or gradient",
        explanation="""\
Parameters and gradients of a model under `fully_shard` are DTensors. `norm()`, `sum()` and other reductions of one
give a DTensor that is not yet reduced over the ranks. `.item()` and `float()` read the part of this rank: every rank
gets another number, and none is right. `.full_tensor()` reduces it; all ranks have to call it.

The result of `torch.nn.utils.clip_grad_norm_` is right, and not reported.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + "fully_shard(model)\nfor p in model.parameters():\n    log(p.grad.norm().item())\n",
                torch=">=2.6",
            ),
        ),
        leaves=(
            _IMPORT + "fully_shard(model)\nfor p in model.parameters():\n    log(p.grad.norm().full_tensor().item())\n",
            _IMPORT + "for p in other.parameters():\n    log(p.grad.norm().item())\n",
        ),
        url=_URL,
    ),
    scope="models",
    words=tuple(("fully_shard", read, f".{loop}") for read in (".item", "float") for loop in sorted(_PARAMETERS)),
    check=check_local,
)

SYNC = Rule(
    RuleCard(
        code="FSDP908",
        name="gradient-sync-never-on",
        summary=f"`{_SYNC}(False)` in a file that trains and never turns it on again",
        explanation=f"""\
With `{_SYNC}(False)` FSDP2 does not reduce gradients: `p.grad` stays None until a backward pass
with the sync turned on. If a training loop never turns it on, its optimizer steps change nothing, without an error.""",
        applicability="manual",
        severity=Severity.CHANGES,
        flags=(
            Example(
                before=_IMPORT + f"model.{_SYNC}(False)\nmodel(batch).sum().backward()\noptimizer.step()\n",
                torch=">=2.6",
            ),
        ),
        leaves=(
            _IMPORT + f"model.{_SYNC}(is_last)\nmodel(batch).sum().backward()\noptimizer.step()\n",
            _IMPORT
            + f"model.{_SYNC}(False)\nmodel(one).sum().backward()\n"
            + f"model.{_SYNC}(True)\nmodel(two).sum().backward()\noptimizer.step()\n",
        ),
        url=_URL,
    ),
    scope="near",
    words=(_SYNC,),
    check=check_sync,
)
