"""FSDP407: policy objects among the policies that `_or_policy` calls.

Source: catalogue wrap-or-policy (`ModuleWrapPolicy.__call__` came with 2.2.0 wrap.py; run with 2.1.2 and 2.4.1).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.construction import PARTIAL
from fsdp_migrate.code.torch_names import torch_path
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

_OR_POLICY = "_or_policy"
_POLICIES = "policies"
_LAST = 3  # module, recurse and a number stand in front of the policies
_MODULE_WRAP, _CUSTOM = f"{PACKAGE}.wrap.ModuleWrapPolicy", f"{PACKAGE}.wrap.CustomPolicy"
_CALLABLE_SINCE = Version("2.2")


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find objects, built in the list of policies, that some supported release cannot call."""
    for call in facts.structure.calls:
        for value in _elements(facts, _policies(facts, call)):
            cls = torch_path(facts, value.func) if isinstance(value, ast.Call) else None
            releases = facts.gates.alive(call)
            if cls == _MODULE_WRAP and any(release < _CALLABLE_SINCE for release in releases):
                message = "`_or_policy` calls its policies, but a `ModuleWrapPolicy` is not callable before torch 2.2"
                verdict = manual("use `partial(transformer_auto_wrap_policy, transformer_layer_cls=...)`")
                yield finding(facts, card, value, facts.statement(call), message, verdict)
            elif cls == _CUSTOM and releases:
                message = "`_or_policy` calls its policies, but a `CustomPolicy` is not callable"
                verdict = manual("use `partial(lambda_auto_wrap_policy, lambda_fn=...)`")
                yield finding(facts, card, value, facts.statement(call), message, verdict)


def _policies(facts: ModuleFacts, call: ast.Call) -> ast.expr | None:
    """What is passed as the policies of `_or_policy`, directly or in a partial."""
    is_partial = facts.names.qualified(call.func) == PARTIAL and bool(call.args)
    callee, places = (call.args[0], ()) if is_partial else (call.func, call.args[_LAST:])
    if not (torch_path(facts, callee) or "").endswith(f".{_OR_POLICY}"):
        return None
    named = (keyword.value for keyword in call.keywords if keyword.arg == _POLICIES)
    return next(named, places[0] if places else None)


def _elements(facts: ModuleFacts, node: ast.expr | None) -> list[ast.expr]:
    """The elements of a list as it is written, or of the one that a name was bound to."""
    value = facts.names.value(node) if isinstance(node, ast.Name) else node
    listed = value.elts if isinstance(value, (ast.List, ast.Tuple, ast.Set)) else []
    return [(facts.names.value(one) or one) if isinstance(one, ast.Name) else one for one in listed]


_IMPORT = "from functools import partial\n\nfrom torch.distributed.fsdp.wrap import ModuleWrapPolicy, _or_policy\n\n"

RULE = Rule(
    RuleCard(
        code="FSDP407",
        name="policy-object-in-or-policy",
        summary="a `ModuleWrapPolicy` or `CustomPolicy` among the policies of `_or_policy`",
        explanation="""\
`_or_policy` calls each of its policies with a module. `ModuleWrapPolicy` is callable since torch 2.2; on 2.0 and 2.1
the call raises TypeError. `CustomPolicy` is never callable. Functions such as `transformer_auto_wrap_policy`, with
their arguments in a `partial`, work on every release.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + "policy = partial(_or_policy, policies=[ModuleWrapPolicy({Block}), other])\n"),
            Example(
                before=_IMPORT.replace("ModuleWrap", "Custom")
                + "policy = partial(_or_policy, policies=[CustomPolicy(choose), other])\n",
                torch=">=2.4",
            ),
        ),
        leaves=(_IMPORT + "policy = partial(_or_policy, policies=[first, second])\n",),
        url="https://github.com/pytorch/pytorch/blob/v2.2.0/torch/distributed/fsdp/wrap.py",
    ),
    scope="models",
    words=(_OR_POLICY,),
    check=check,
)
