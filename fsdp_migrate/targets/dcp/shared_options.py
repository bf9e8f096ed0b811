"""FSDP719: one options object for the model and the optimizer, in code that has had a config for each.

The defaults of the two configs differ (torch 2.1 to 2.15, api.py): without one of its own the optimizer's state is on
the CPU, of every rank. Run on two ranks: [06b 07 08b].
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.state_dicts.new_calls import STATE_DICT, URL, NewCall, is_on, new_calls, options_of
from fsdp_migrate.code.state_dicts.settings import FULL, InForce, NotUnderstood, Wanted, in_force
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_MODEL, _OPTIMIZER, _BOTH = "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict"


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find options that serve for both, where a type that the file sets has other settings for one of them."""
    named = (facts.fsdp.settings(name) for name in ("state_dict_type", "set_state_dict_type"))
    settings = [setting for found in named for setting in found if _is_for_both(facts, setting)]
    for new in _shared(facts) if settings else ():
        for setting in settings:
            try:
                old = in_force(facts, setting)
            except NotUnderstood:
                continue
            difference = _difference(facts, new, old)
            if difference is not None:
                message = (
                    f"these options are for the model and the optimizer; the type in line {setting.call.lineno} has "
                    f"other settings for each: {difference}"
                )
                way = f"call `{_MODEL}` and `{_OPTIMIZER}` each with its own options"
                yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))
                break


def _is_for_both(facts: ModuleFacts, setting: TypeSetting) -> bool:
    """Whether the function that sets a type asks for an optimizer's state, too."""
    asked = facts.structure.method_calls.get("optim_state_dict", ())
    return any(facts.function(call) is facts.function(setting.call) for call in asked)


def _shared(facts: ModuleFacts) -> Iterator[NewCall]:
    """The calls for the optimizer's state whose options are the model's, too."""
    models = [one.arguments.get("options") for one in new_calls(facts) if one.function == _MODEL]
    for new in new_calls(facts):
        given = new.arguments.get("options")
        is_shared = isinstance(given, ast.Name) and any(_is_same(facts, given, other) for other in models)
        if (new.function == _BOTH and not _is_none(new)) or (new.function == _OPTIMIZER and is_shared):
            yield new


def _is_none(new: NewCall) -> bool:
    """Whether a call names no optimizer, for the model's state alone."""
    given = new.arguments.get("optimizers")
    return isinstance(given, (ast.List, ast.Tuple)) and not given.elts


def _is_same(facts: ModuleFacts, one: ast.Name, other: ast.expr | None) -> bool:
    value = facts.names.value(one)
    return isinstance(other, ast.Name) and value is not None and facts.names.value(other) is value


def _difference(facts: ModuleFacts, new: NewCall, old: InForce) -> str | None:
    """What one of the two had before and does not have by these options, None where both have what they had."""
    fields = options_of(facts, new)
    if fields is None or not all(is_literal(value, True) or is_literal(value, False) for value in fields.values()):
        return None
    full, off = is_on(fields.get("full_state_dict")), is_on(fields.get("cpu_offload"))
    if full is not (old.type_name == FULL):
        return None
    now = _placed(full, Wanted(off, off))
    model, optimizer = _placed(full, old.model), _placed(full, old.optimizer)
    if model == optimizer or now not in (model, optimizer):
        return None
    part, before = ("model", model) if now == optimizer else ("optimizer", optimizer)
    return f"the {part}'s state was {before}, and is {now}"


def _placed(full: bool, wanted: Wanted) -> str:
    device = "on the CPU" if wanted.offload else "on the device"
    if not full:
        return device
    return f"{device} of {'rank 0' if wanted.rank0_only else 'every rank'}"


_IMPORT = f"""\
from {STATE_DICT} import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
_OLD = """\
def save_before(model, optim):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        return model.state_dict(), FSDP.optim_state_dict(model, optim)


"""
_NEW = """\
def save(model, optim):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    return weights, get_optimizer_state_dict(model, optim, options=options)
"""

RULE = Rule(
    RuleCard(
        code="FSDP719",
        name="one-options-for-both",
        summary="one `StateDictOptions` for model and optimizer, where `state_dict_type` has settings for each",
        explanation="""\
`FSDP.state_dict_type` has a config for the model and one for the optimizer, with different defaults: a full optimizer
state is on the CPU of every rank, a sharded one on the CPU, while the model's stays on the device. One options object
for both is exact only where both configs agree. With `full_state_dict=True, cpu_offload=True` ranks other than 0 get
`{}`, for the optimizer, too.

Reported in files that still have a `state_dict_type` besides the new calls. This is a hint: it does no harm if only
rank 0 uses the state.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(Example(before=_IMPORT + _OLD + _NEW),),
        leaves=(
            _IMPORT
            + _OLD.replace("FULL_STATE_DICT, config)", "FULL_STATE_DICT, config, optim_config)").replace(
                "    with ",
                "    optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)\n    with ",
            )
            + _NEW,
            _IMPORT + _NEW,
        ),
        url=URL,
    ),
    words=("state_dict_type", "set_state_dict_type"),
    check=check,
)
