"""FSDP710 and FSDP711: full state dicts that are loaded with a broadcast which not all ranks join, or without one.

Sources: torch 2.13 checkpoint/state_dict.py, `set_state_dict` (`optim_only=not model_state_dict`) and
`_load_model_state_dict` (a full dict is completed with the live tensors before it is loaded, since 2.5).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.sharded_models import has_flat_parameters
from fsdp_migrate.code.state_dicts.new_calls import (
    STATE_DICT,
    URL,
    is_filled,
    is_off,
    is_on,
    item_of,
    new_calls,
    options_of,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_FULL, _BROADCAST = "full_state_dict", "broadcast_from_rank0"
_COMPLETED_SINCE = Version("2.5")


def check_empty(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `set_state_dict` with a broadcast and a model dict that may be empty on the ranks that have none."""
    for new in new_calls(facts):
        given = new.arguments.get("model_state_dict")
        if new.function != "set_state_dict" or given is None or not is_on(new.option(facts, _BROADCAST)):
            continue
        if _may_be_empty_or_not(facts, given):
            message = (
                f"`{ast.unparse(given)}` may be empty: a rank with an empty dict skips the model while rank 0 "
                "broadcasts it, and the job hangs"
            )
            way = (
                "call `set_model_state_dict` and `set_optimizer_state_dict`: they accept an empty dict on the other "
                "ranks"
            )
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


def _may_be_empty_or_not(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether a dict is empty in one case and something else in another."""
    cases = list(_cases(facts, node, ()))
    return len(cases) > 1 and any(map(_is_empty, cases)) and not all(map(_is_empty, cases))


def _cases(facts: ModuleFacts, node: ast.expr, through: tuple[ast.expr, ...]) -> Iterator[ast.expr | None]:
    """What an expression may be, None among it for what is not visible; `through` are those that led to it."""
    through = (*through, node)
    if isinstance(node, ast.IfExp):
        yield from (*_cases(facts, node.body, through), *_cases(facts, node.orelse, through))
    elif isinstance(node, ast.Name):
        values = [binding.value for binding in facts.names.bindings(node)]
        if not values or is_filled(facts, node):
            yield None
            return
        for value in values:
            if value is None or isinstance(value, ast.Name) or value in through:
                yield None
            else:
                yield from _cases(facts, value, through)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        for case in _cases(facts, node.value, through):
            yield item_of(case, node.slice.value) if isinstance(case, ast.Dict) else None
    else:
        yield node


def _is_empty(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Dict):
        return not node.keys
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    return isinstance(node, ast.Call) and is_call and not node.args and not node.keywords


def check_unchecked(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find full dicts that are loaded without a broadcast."""
    for new in new_calls(facts):
        if new.function not in ("set_model_state_dict", "set_state_dict"):
            continue
        fields = options_of(facts, new)
        if fields is None or not is_on(fields.get(_FULL)) or not is_off(fields.get(_BROADCAST)):
            continue
        if is_literal(fields.get("strict"), False) and isinstance(facts.structure.parents[new.call], ast.Expr):
            continue  # whoever asked for no check, and reads no result, gets what was asked for
        if any(release >= _COMPLETED_SINCE for release in facts.gates.alive(new.call)):
            flat = has_flat_parameters(facts) and facts.fsdp.is_instance(new.arguments.get("model", new.call))
            lost = "buffers" if flat else "keys"
            message = (
                f"missing {lost} of a full state dict are no error since torch 2.5: the model keeps its own values for "
                "them"
            )
            way = f"pass `{_BROADCAST}=True` (since torch 2.4), with which they raise, or compare the keys before"
            yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))


_IMPORT = f"from {STATE_DICT} import StateDictOptions, set_model_state_dict, set_state_dict\n\n"
_BOTH = "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
_SET = "set_state_dict(model, optim, model_state_dict=weights, optim_state_dict=moments, options=options)\n"

EMPTY = Rule(
    RuleCard(
        code="FSDP710",
        name="broadcast-of-empty-dict",
        summary="`set_state_dict` with `broadcast_from_rank0=True` and no model dict on the other ranks",
        explanation="""\
With `broadcast_from_rank0=True` only rank 0 needs the state, so the other ranks often pass `{}`. `set_state_dict` reads
an empty `model_state_dict` as "only the optimizer". Those ranks skip the model while rank 0 broadcasts it, and the job
hangs or fails (seen on torch 2.4 to 2.13).

`set_model_state_dict` and `set_optimizer_state_dict` accept `{}` on the other ranks.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(
                before=_IMPORT + "weights = torch.load(path) if rank == 0 else {}\n" + f"options = {_BOTH}\n" + _SET
            ),
        ),
        leaves=(
            _IMPORT + f"weights = torch.load(path)\noptions = {_BOTH}\n{_SET}",
            _IMPORT
            + "weights = torch.load(path) if rank == 0 else {}\n"
            + f"set_model_state_dict(model, weights, options={_BOTH})\n",
        ),
        url=URL,
    ),
    words=("set_state_dict",),
    check=check_empty,
    scope="distributed",
)

UNCHECKED = Rule(
    RuleCard(
        code="FSDP711",
        name="full-load-without-broadcast",
        summary="a full model state dict that is loaded with `full_state_dict=True` alone",
        explanation="""\
Since torch 2.5 `set_model_state_dict` completes a full state dict with the model's own tensors before it loads it.
Missing keys are then no error, even with `strict=True`, and `missing_keys` is empty: a part of the model keeps its
initial values. Unexpected keys still raise.

With `use_orig_params=False` this is about buffers: a missing parameter raises ("size mismatch").

With `broadcast_from_rank0=True` missing keys raise. The dicts of the other ranks are ignored, so only rank 0 needs one.
This is a hint, because a file with all keys loads correctly.""",
        applicability="manual",
        severity=Severity.HINT,
        flags=(
            Example(
                before=_IMPORT
                + "set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))\n"
            ),
        ),
        leaves=(
            _IMPORT + f"set_model_state_dict(model, weights, options={_BOTH})\n",
            _IMPORT + "set_model_state_dict(model, shards)\n",
        ),
        url=URL,
    ),
    words=("set_model_state_dict", "set_state_dict"),
    check=check_unchecked,
    scope="distributed",
)
