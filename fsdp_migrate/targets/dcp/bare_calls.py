"""Calls of `FSDP.optim_state_dict` and `optim_state_dict_to_load` that no type is set for: they go by its default.

That is FULL_STATE_DICT with the optimizer state on the CPU of every rank. Nothing about them is deprecated in torch, so
only what becomes another call is told of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.code.state_dicts.functions import calls_of
from fsdp_migrate.code.state_dicts.rewriting import of_call
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.contexts import enclosing_settings, is_in_force
from fsdp_migrate.findings import Finding
from fsdp_migrate.rules.card import RuleCard, Verdict, finding

METHODS = ("optim_state_dict", "optim_state_dict_to_load")
_MOST_STEPS = 4


class _Set(Exception):
    """A type is set for the call, or may be: for good, or by a context that is not known."""


def bare_calls(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the calls that the new functions can take the place of."""
    for method in METHODS:
        for call in facts.structure.method_calls.get(method, ()):
            model = _model(call)
            receiver = None if model is None else facts.fsdp.receiver(call.func, model)
            if model is None or receiver is None or receiver.doubt is not None or not facts.reached(call):
                continue
            try:
                may_be_set = _may_be_set(facts, call, ())
            except _Set:
                continue
            new = of_call(facts, call, model)
            if isinstance(new, str) or facts.torch.oldest < Version(new.floor):
                continue
            reasons = [reason for reason in (new.verdict.unsafe, may_be_set) if reason is not None]
            verdict = Verdict(new.verdict.fix, unsafe="; ".join(reasons) or None)
            message = f"`FSDP.{method}` works on FSDP1 only: use `{new.functions[0]}`"
            own = card._replace(floor=new.floor)
            yield finding(facts, own, call.func, facts.statement(call), message, verdict)


def _model(call: ast.Call) -> ast.expr | None:
    """The model of a call, None where its arguments may be in the order of torch 2.0."""
    given = {one.arg: one.value for one in call.keywords}
    by_place = not any(isinstance(one, ast.Starred) for one in call.args) and len(call.args) > 1
    if "model" in given and ("optim" in given or not call.args):
        return given["model"]
    return call.args[0] if by_place and is_called_optimizer(call.args[1]) else None


def _may_be_set(facts: ModuleFacts, node: ast.AST, through: tuple[ast.AST, ...]) -> str | None:
    """Why a type may be set where control gets to `node`, None if none is.

    Raises:
        _Set: one is.
    """
    blocks = facts.fsdp.settings("state_dict_type")
    in_block = any(is_in_force(facts, one, node) for one in blocks) or None in enclosing_settings(facts, node)
    if in_block or facts.fsdp.settings("set_state_dict_type"):
        raise _Set
    function = facts.function(node)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    if any(facts.function(one) is function for one in facts.fsdp.constructions):
        return None  # the model is made here
    callers = calls_of(facts, function) if len(through) < _MOST_STEPS else ()
    if not callers:
        return f"it is not visible whether callers of `{function.name}` set a type"
    found = [_may_be_set(one.facts, one.call, (*through, function)) for one in callers if function not in through]
    return next((reason for reason in found if reason is not None), None)
