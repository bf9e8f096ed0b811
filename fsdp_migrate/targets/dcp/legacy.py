"""FSDP101 to 105 and FSDP201 under the target: with FSDP210 where that rewrites all, else by the new functions.

The methods before torch 2.0 ignore the type that is set, and each stands for one type and config [49]. The new function
is called at once, unsafely where it is not the same in all: the usual fix would set a type, which the target is to end.
Where there is no new function for a call, the fix is that of every torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.legacy_methods import METHODS
from fsdp_migrate.code.state_dicts.rewriting import of_call
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.rules.card import RuleCard, finding
from fsdp_migrate.rules.index import entry_of
from fsdp_migrate.rules.running import findings_of
from fsdp_migrate.targets.dcp.state_dict_type import rewritten


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """What the rule with the same code finds; one method's calls by their new functions where these do the same."""
    calls = facts.structure.method_calls.get(card.name.replace("-", "_"), ())
    by_span = {facts.source.span(call.func): call for call in calls}
    for found in findings_of(facts, entry_of(card.code)):
        call, whole = by_span.get(found.span), _with_all(facts, found)
        yield whole or (found if call is None else _finding(facts, card, call, found))


def _with_all(facts: ModuleFacts, found: Finding) -> Finding | None:
    """The finding with the fix of FSDP210, where that rewrites what is around it."""
    fix = next((fix for span, fix in rewritten(facts) if span.contains(found.span)), None)
    return None if fix is None else found._replace(applicability=Applicability.SAFE, reason=None, fix=fix)


def _finding(facts: ModuleFacts, card: RuleCard, call: ast.Call, otherwise: Finding) -> Finding:
    """The finding with the new function in its fix, unsafe where that is not the same in all; else the one it was."""
    method = METHODS[card.name.replace("-", "_")]
    index = method.parameters.index("model")
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    model = given.get("model", call.args[index] if index < len(call.args) else None)
    if model is None or facts.fsdp.receiver(call.func, model) is None:
        return otherwise
    new = of_call(facts, call, model)
    if isinstance(new, str):
        return otherwise
    message = f"`{method.name}` is deprecated since torch {card.deprecated}: use `{new.functions[0]}`"
    card = card._replace(floor=new.floor)
    found = finding(facts, card, call.func, facts.statement(call), message, new.verdict)
    return found if found.fix is not None else otherwise


_CODES = ("FSDP101", "FSDP102", "FSDP103", "FSDP104", "FSDP105", "FSDP201")
_BASES = [entry_of(code).load() for code in _CODES]
RULES = tuple(
    base._replace(card=base.card._replace(applicability="safe, unsafe or manual"), check=check, target="dcp")
    for base in _BASES
)
