"""Whether an optimizer has stepped when control gets to a place.

`get_optimizer_state_dict` of an optimizer without state performs a step to make some: with learning rate 0 since
torch 2.4, but the state is there from then on and counts one step more [15b 15c].
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.code.state_dicts.functions import Function, called, calls_of, performed
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BRANCHES = (ast.If, ast.IfExp, ast.Match, ast.ExceptHandler)
_MOST_STEPS = 4


def may_precede_first_step(facts: ModuleFacts, node: ast.AST) -> str | None:
    """Why `node` may run before the first step of an optimizer, None where it runs in or after the training loop."""
    return _before_step(facts, node, ())


def _before_step(facts: ModuleFacts, node: ast.AST, through: tuple[ast.AST, ...]) -> str | None:
    function = facts.function(node)
    steps = facts.memo((_steps, function), lambda: list(_steps(facts, function)))
    if any(_precedes(facts, step, node, function) for step in steps):
        return None
    if steps or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function in through:
        return f"`optimizer.step()` has not run on every path to line {getattr(node, 'lineno', 0)}"
    callers = calls_of(facts, function) if len(through) < _MOST_STEPS else ()
    if not callers:
        return f"it is not visible whether the optimizer has stepped before `{function.name}` runs"
    for caller in callers:
        reason = _before_step(caller.facts, caller.call, (*through, function))
        if reason is not None:
            where = "" if caller.facts is facts else f"{caller.shown}: "
            return f"`{function.name}` may run before the first step ({where}{reason})" if not through else reason
    return None


def _steps(facts: ModuleFacts, function: ast.AST) -> Iterator[ast.Call]:
    """The calls in a function that step an optimizer, or run a function of the project that does."""
    for node in performed(function):
        if isinstance(node, ast.Call) and (_is_step(node) or _runs_step(facts, node)):
            yield node


def _is_step(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    owner = call.func.value
    return is_called_optimizer(owner) or any(is_called_optimizer(argument) for argument in call.args)


def _runs_step(facts: ModuleFacts, call: ast.Call) -> bool:
    function = called(facts, call.func)
    return function is not None and _contains_step(function, _MOST_STEPS)


def _contains_step(function: Function, depth: int) -> bool:
    key = (_contains_step, function.node)
    return function.facts.memo(key, lambda: _has_step(function, depth))


def _has_step(function: Function, depth: int) -> bool:
    for node in performed(function.node):
        if isinstance(node, ast.Call):
            if _is_step(node):
                return True
            inner = called(function.facts, node.func) if depth else None
            if inner is not None and inner.node is not function.node and _contains_step(inner, depth - 1):
                return True
    return False


def _precedes(facts: ModuleFacts, step: ast.AST, node: ast.AST, function: ast.AST) -> bool:
    """Whether a step has run when control gets to `node`: before it in its loop, or in a loop that lies behind.

    A step that stands under a condition counts where the loop around both lies behind; a loop is taken to run.
    """
    if place_of(step) >= place_of(node):
        return False
    around = {function, *facts.blocks_around(node)}
    child, conditional = step, False
    while True:
        parent = facts.structure.parents[child]
        if parent in around:
            return not conditional and _in_order(facts, parent, child, node)
        if isinstance(parent, _BRANCHES):
            conditional = conditional or not _is_decided_once(facts, parent)
        elif isinstance(parent, _LOOPS):
            conditional = False
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        child = parent


def _is_decided_once(facts: ModuleFacts, branch: ast.AST) -> bool:
    """Whether a condition has the same answer in every turn of the loop around it, as that of a precision has."""
    if not isinstance(branch, ast.If) or any(isinstance(part, ast.Mod) for part in ast.walk(branch.test)):
        return False
    loop = next((one for one in facts.blocks_around(branch) if isinstance(one, _LOOPS)), None)
    names = {part.id for part in ast.walk(branch.test) if isinstance(part, ast.Name)}
    inside = () if loop is None else ast.walk(loop)
    bound = {part.id for part in inside if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    return loop is not None and not names & bound and not any(isinstance(p, ast.Call) for p in ast.walk(branch.test))


def _in_order(facts: ModuleFacts, parent: ast.AST, child: ast.AST, node: ast.AST) -> bool:
    """Whether the part `child` of `parent` has run when the part with `node` runs: not in another branch."""
    other = node
    while facts.structure.parents[other] is not parent:
        other = facts.structure.parents[other]
    if not isinstance(parent, (ast.If, ast.Try, ast.Match)):
        return True
    return other is child or any(
        isinstance(block, list) and child in block and other in block for _, block in ast.iter_fields(parent)
    )
