"""Where `torch.nn.utils.clip_grad_norm_` is right for what may be an FSDP model, or never gets one."""

from __future__ import annotations

import ast

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.exits import leaves

_WORDS = ("fsdp", "fullysharded", "clip_grad_norm_")
_SUMMON = "summon_full_params"
_UNEQUAL = (ast.NotEq, ast.IsNot, ast.NotIn)


def is_excused(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether FSDP models go another way than through this call, or are whole at it."""
    child: ast.AST = call
    for block in facts.blocks_around(call):
        if _is_other_arm(block, child) or _is_behind_an_exit(block, child) or _is_whole_inside(block):
            return True
        child = block
    return False


def _is_other_arm(block: ast.AST, child: ast.AST) -> bool:
    """An `else` of a test of what the model is or can, or a handler of a model that cannot."""
    if isinstance(block, ast.If):
        return child in (block.body if _is_negated(block.test) else block.orelse) and _asks_about_fsdp(block.test)
    if isinstance(block, ast.IfExp):
        return child is (block.body if _is_negated(block.test) else block.orelse) and _asks_about_fsdp(block.test)
    return isinstance(block, ast.Try) and child in block.handlers and any(map(_asks_about_fsdp, block.body))


def _is_behind_an_exit(block: ast.AST, child: ast.AST) -> bool:
    """Whether an `if` above the statement has sent FSDP models away for good."""
    bodies = (getattr(block, field, None) for field in ("body", "orelse", "finalbody"))
    body = next((body for body in bodies if isinstance(body, list) and child in body), [])
    above = body[: body.index(child)] if body else []
    return any(
        isinstance(one, ast.If) and leaves(one.body) and _asks_about_fsdp(one.test)
        for one in above
        if not (isinstance(one, ast.If) and _is_negated(one.test))
    )


def _is_whole_inside(block: ast.AST) -> bool:
    """Whether a `with` gathers the parameters, and with them the gradients, for what it holds."""
    return isinstance(block, (ast.With, ast.AsyncWith)) and any(
        isinstance(called := item.context_expr, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and called.func.attr == _SUMMON
        for item in block.items
    )


def _is_negated(test: ast.expr) -> bool:
    """Whether a test is true for what is not FSDP: `not fsdp`, `fsdp is None`, `strategy != "fsdp"`."""
    if isinstance(test, ast.BoolOp):
        return any(_is_negated(value) for value in test.values if _asks_about_fsdp(value))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not _is_negated(test.operand)
    if not isinstance(test, ast.Compare):
        return False
    compared = test.comparators[0]
    nothing = isinstance(compared, ast.Constant) and not compared.value
    return isinstance(test.ops[0], _UNEQUAL) is not nothing


def _asks_about_fsdp(test: ast.AST) -> bool:
    text = ast.unparse(test).lower()
    return any(word in text for word in _WORDS)
