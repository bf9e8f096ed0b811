"""FSDP101-105: the optimizer-state methods that torch 2.0 replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fsdp_migrate.code.legacy_methods import METHODS, Method
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.findings import Finding
from fsdp_migrate.rules.card import RuleCard, finding, manual
from fsdp_migrate.targets.modernise.optimizer.legacy_plan import plans
from fsdp_migrate.targets.modernise.optimizer.name_mentions import residue

# A path such as `mock.patch` takes: into torch, or to where a module of the project has FSDP.
_DOTTED_PATH = re.compile(r"(?:[A-Za-z_]\w*\.)+(?:FSDP|FullyShardedDataParallel)\.\w+")

# What makes functions that read an attribute, or call a method, of what they are given later.
_READERS = ("operator.attrgetter", "operator.methodcaller")
_REPLACED = manual(
    "the calls are rewritten to another method, which this replacement does not affect: change it together with "
    "the calls"
)


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """The findings of one legacy method: `card` is that of the method named like it."""
    method = METHODS[card.name.replace("-", "_")]
    for planned in plans(facts):
        if planned.method is method:
            statement = facts.statement(planned.call)
            message = f"`{method.name}` is deprecated since torch {card.deprecated}: {_replacement(method)}"
            yield finding(facts, card, planned.call.func, statement, message, planned.verdict)
    yield from references(facts, card, method.name)


def _replacement(method: Method) -> str:
    text = f"use `FSDP.{method.new}` under `{method.type_name}`"
    if method.rank0_only is not None:
        text += " with an optimizer config"
    return text


def references(facts: ModuleFacts, card: RuleCard, method: str) -> Iterator[Finding]:
    """Uses of an FSDP method without a call: aliases, `partial`, `getattr` and strings for `mock.patch`."""
    deprecated = f"`{method}` is deprecated since torch {card.deprecated};"
    message = f"{deprecated} this is a reference, not a call"
    verdict = manual("only a direct call can be rewritten: call the method here, or change the place that calls it")
    called = {id(call.func) for call in facts.structure.calls}
    for node in facts.structure.attributes:
        if node.attr != method or id(node) in called:
            continue
        if isinstance(node.ctx, ast.Load):
            if facts.fsdp.receiver(node, None) is not None and facts.reached(node):
                yield finding(facts, card, node, facts.statement(node), message, verdict)
        elif facts.fsdp.is_class(node.value) and facts.reached(node):
            yield finding(
                facts, card, node, facts.statement(node), (f"{deprecated} this assigns another object to it"), _REPLACED
            )
    names = frozenset(constant for constant in facts.structure.strings if _names_method(facts, constant, method))
    for constant in names:
        if facts.reached(constant):
            yield finding(facts, card, constant, facts.statement(constant), message, verdict)
    yield from residue(facts, card, method, names)


def _names_method(facts: ModuleFacts, constant: ast.Constant, method: str) -> bool:
    """Whether a string names the method for `getattr(FSDP, ...)` and the like or as a dotted path to patch."""
    if not isinstance(constant.value, str):
        return False
    if _DOTTED_PATH.fullmatch(constant.value) and constant.value.endswith(f".{method}"):
        return True
    call = facts.structure.parents.get(constant)
    if constant.value != method or not isinstance(call, (ast.Call, ast.Subscript)):
        return False
    if isinstance(call, ast.Subscript):
        found = look_up(call)
        return found is not None and facts.fsdp.is_class(found.owner)
    if facts.names.qualified(call.func) in _READERS:
        return facts.fsdp.may_be_unseen(method)
    if constant not in call.args[1:2]:
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("getattr", "hasattr", "setattr", "object", "delattr"):
        return False
    owner = call.args[0]
    if facts.fsdp.is_class(owner) or facts.fsdp.is_instance(owner, method):
        return name != "hasattr"
    return name == "getattr" and len(call.args) == 2 and facts.fsdp.may_be_fsdp(owner, method)
