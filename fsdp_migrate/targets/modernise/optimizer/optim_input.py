"""FSDP106: the `optim_input` argument, deprecated since torch 1.13 on every method that takes it.

Dropping it changes nothing where the optimizer is passed too: parameter order then comes from the optimizer. Where
it is not, the fallback is `model.parameters()` order. Source: catalogue osd-optim-input (torch 1.13.1 to 2.15.0,
torch/distributed/fsdp/fully_sharded_data_parallel.py `_is_using_optim_input`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import has_effect
from fsdp_migrate.code.dropped_arguments import without
from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, Bound, bind, is_literal
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.findings import Finding
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Traced, Verdict, finding, manual
from fsdp_migrate.targets.modernise.optimizer.legacy_plan import plans

REKEY = "rekey_optim_state_dict"
_REKEY_PARAMETERS = ("optim_state_dict", "optim_state_key_type", "model", "optim_input", "optim")
_MESSAGE = "`optim_input` is deprecated since torch 1.13: the parameter order comes from the optimizer"


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `optim_input` on calls that stay: rekey, and legacy calls that cannot be rewritten."""
    for call, parameters in (*_rekey_calls(facts), *_legacy_calls(facts)):
        try:
            bound = bind(call, parameters, 0)
        except BindingError:
            continue
        given = bound.get("optim_input")
        if given is None or is_literal(given.value, None):
            continue
        yield finding(
            facts, card, given.value, facts.statement(call), _MESSAGE, _verdict(facts, call, parameters, bound)
        )


def _rekey_calls(facts: ModuleFacts) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    position = _REKEY_PARAMETERS.index("model")
    for call in facts.structure.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == REKEY and facts.reached(call):
            named = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
            model = call.args[position] if position < len(call.args) else next(iter(named), None)
            if facts.fsdp.receiver(call.func, model) is not None:
                yield call, _REKEY_PARAMETERS


def _legacy_calls(facts: ModuleFacts) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    for planned in plans(facts):
        if planned.verdict.fix is None and "optim_input" in planned.method.parameters:
            yield planned.call, planned.method.parameters


def _verdict(facts: ModuleFacts, call: ast.Call, parameters: tuple[str, ...], bound: dict[str, Bound]) -> Verdict:
    if "optim" not in bound or is_literal(bound["optim"].value, None):
        return manual(
            "without `optim_input` and `optim=`, torch assumes the order of `model.parameters()`: pass `optim=`"
        )
    given = bound["optim_input"]
    if has_effect(facts, given.value):
        return manual(
            f"`{ast.unparse(given.value)}` would no longer be evaluated: remove it yourself if it has no effect"
        )
    verdict = without(facts, call, given, parameters)
    if verdict.fix is None or _is_order_of(facts, given.value, bound["optim"].value):
        return verdict
    text = ast.unparse(given.value)
    return verdict._replace(
        unsafe=(f"torch uses the order of `{text}`: the ids change if the optimizer has another order")
    )


def _is_order_of(facts: ModuleFacts, given: ast.expr, optimizer: ast.expr) -> bool:
    """Whether `given` is visibly what the optimizer holds: its groups, or what it is built from in this file."""
    if isinstance(given, ast.Attribute) and given.attr == "param_groups":
        return ast.dump(given.value) == ast.dump(optimizer)
    built = facts.names.value(optimizer) if isinstance(optimizer, ast.Name) else None
    return isinstance(built, ast.Call) and bool(built.args) and ast.dump(built.args[0]) == ast.dump(given)


RULE = Rule(
    RuleCard(
        code="FSDP106",
        name="optim-input",
        summary="`optim_input` is passed to an optimizer-state method",
        explanation="""\
The optimizer-state methods once took the parameters or groups that the optimizer was built from. `optim_input` is
deprecated since torch 1.13: the methods read the order from the optimizer. The fix removes the argument if the
optimizer is passed, too, and turns later positions into keywords. Calls that FSDP101 to FSDP105 rewrite are not
reported here.

If both are passed, torch still uses `optim_input`. If its order differs from the optimizer's, the fix changes the ids,
to the right ones. It is safe if the two are visibly the same: `optim.param_groups`, or the value that the optimizer is
built from.""",
        applicability="safe, unsafe or manual",
        deprecated="1.13",
        floor="1.13",
        flags=(
            Example(
                before="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, OptimStateKeyType

def to_ids(osd, model, optim):
    return FSDP.rekey_optim_state_dict(osd, OptimStateKeyType.PARAM_ID, model, optim.param_groups, optim)
""",
                after="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, OptimStateKeyType

def to_ids(osd, model, optim):
    return FSDP.rekey_optim_state_dict(osd, OptimStateKeyType.PARAM_ID, model, optim=optim)
""",
            ),
            Example(
                before="""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, OptimStateKeyType

def to_ids(osd, model, groups):
    return FSDP.rekey_optim_state_dict(osd, OptimStateKeyType.PARAM_ID, model, optim_input=groups)
""",
                note="the optimizer is not passed",
            ),
        ),
        leaves=(
            """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, OptimStateKeyType

def to_ids(osd, model, optim):
    return FSDP.rekey_optim_state_dict(osd, OptimStateKeyType.PARAM_ID, model, optim=optim)
""",
        ),
        url="https://pytorch.org/docs/stable/fsdp.html",
    ),
    words=(REKEY, *METHODS),
    check=check,
    calls=lambda: (Traced(f"{FSDP}.{REKEY}", given="optim_input"),),
)
