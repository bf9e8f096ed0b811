"""FSDP402-406: names of wrap policies that were renamed, moved or removed.

Sources: catalogue wrap-default-policy, wrap-policy-classes, wrap-or-policy, wrap-param-exec-order, wrap-recursive-wrap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span
from fsdp_migrate.targets.modernise.moved.planner import check
from fsdp_migrate.targets.modernise.moved.rows import DEFAULT_POLICY, EXEC_ORDER, OR_POLICY, POLICY_BASE
from fsdp_migrate.targets.modernise.moved.table import old_names, traced
from fsdp_migrate.torch_api.data import exists, signature

WRAP = f"{PACKAGE}.wrap"
FULL = f"{PACKAGE}.fully_sharded_data_parallel"
DEFAULT, SIZE_BASED = "default_auto_wrap_policy", "size_based_auto_wrap_policy"
OLD_BASE, NEW_BASE = "_FSDPPolicy", "_Policy"
_RECURSIVE = "_recursive_wrap"
_OR_POLICY = "_or_policy"


def check_base(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the policy base class of torch 2.0, and the property that its `ModuleWrapPolicy` had."""
    yield from check(facts, card)
    yield from _policy_property(facts, card)


def _policy_property(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """`.policy` of what `ModuleWrapPolicy(...)` built, where some release no longer has it."""
    for node in facts.structure.attributes:
        if node.attr != "policy" or not isinstance(node.ctx, ast.Load) or not _is_module_policy(facts, node.value):
            continue
        path = f"{WRAP}.ModuleWrapPolicy.policy"
        if all(exists(path, release) is not False for release in facts.gates.alive(node)):
            continue
        end = facts.source.span(node).end
        dot = facts.source.span(node.value).end
        verdict = Verdict(Fix((Replace(Span(dot, end), ""),)))
        if facts.source.segment(Span(dot, end)) != ".policy" or not _goes_to_fsdp(facts, node):
            verdict = manual("pass the policy object itself: remove `.policy`")
        message = "`policy` of `ModuleWrapPolicy` was removed in torch 2.1: FSDP accepts the object itself"
        yield finding(facts, card, node, facts.statement(node), message, verdict)


def _is_module_policy(facts: ModuleFacts, node: ast.expr) -> bool:
    value = facts.names.value(node) if isinstance(node, ast.Name) else node
    return isinstance(value, ast.Call) and facts.names.qualified(value.func) == f"{WRAP}.ModuleWrapPolicy"


def _goes_to_fsdp(facts: ModuleFacts, node: ast.expr) -> bool:
    keyword = facts.structure.parents[node]
    call = facts.structure.parents[keyword] if isinstance(keyword, ast.keyword) else None
    named = isinstance(keyword, ast.keyword) and keyword.arg == "auto_wrap_policy"
    return named and isinstance(call, ast.Call) and facts.fsdp.is_class(call.func)


def check_recursive(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find calls of `_recursive_wrap` that lack the arguments it needs since torch 1.12."""
    path = f"{WRAP}.{_RECURSIVE}"
    for call in facts.structure.calls:
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or facts.names.qualified(call.func) != path:
            continue
        given = {keyword.arg for keyword in call.keywords}
        if None in given or any(isinstance(argument, ast.Starred) for argument in call.args):
            continue
        lacking = [name for name in _needed(facts, call) if name not in given]
        if lacking:
            message = f"`{_RECURSIVE}` requires `{lacking[0]}` since torch 1.12"
            verdict = manual(
                "pass `ignored_modules=set(), ignored_params=set()`, or let FSDP wrap (the function is private)"
            )
            yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _needed(facts: ModuleFacts, call: ast.Call) -> list[str]:
    """The parameters without a default that are not among the positions of `call`, on some release that runs it."""
    for release in sorted(facts.gates.alive(call), reverse=True):
        parameters = signature(f"{WRAP}.{_RECURSIVE}", release) or ()
        needed = [p.name for p in parameters[len(call.args) :] if not p.has_default and p.name.startswith("ignored")]
        if needed:
            return needed
    return []


_FROM_WRAP = f"from {WRAP} import"
_IMPORT = f"from {PACKAGE} import FullyShardedDataParallel as FSDP\n"

RULES = (
    Rule(
        RuleCard(
            code=DEFAULT_POLICY,
            name="default-auto-wrap-policy",
            summary="`default_auto_wrap_policy`, renamed to `size_based_auto_wrap_policy` in torch 1.12",
            explanation="""\
torch 1.12 renamed the policy that wraps by number of parameters from `default_auto_wrap_policy` to
`size_based_auto_wrap_policy`, with the same arguments and the same function attributes. The old name cannot be
imported. The fix renames every use. If other code may rely on the old name, only the import changes and keeps the
old name as an alias.""",
            applicability="safe",
            removed="1.12",
            flags=(
                Example(
                    before=f"{_FROM_WRAP} {DEFAULT}\n\npolicy = functools.partial({DEFAULT}, min_num_params=1000)\n",
                    after=f"{_FROM_WRAP} {SIZE_BASED}\n\n"
                    f"policy = functools.partial({SIZE_BASED}, min_num_params=1000)\n",
                ),
                Example(
                    before=f"{_FROM_WRAP} {DEFAULT}\n\n__all__ = ['{DEFAULT}']\n",
                    after=f"{_FROM_WRAP} {SIZE_BASED} as {DEFAULT}\n\n__all__ = ['{DEFAULT}']\n",
                ),
            ),
            leaves=(
                f"from fairscale.nn.wrap import {DEFAULT}\n",
                f"try:\n    {_FROM_WRAP} {SIZE_BASED}\nexcept ImportError:\n    {_FROM_WRAP} {DEFAULT}\n",
            ),
            url="https://github.com/pytorch/pytorch/pull/76858",
        ),
        (),
        check,
        names=partial(old_names, DEFAULT_POLICY),
        calls=partial(traced, DEFAULT_POLICY),
    ),
    Rule(
        RuleCard(
            code=POLICY_BASE,
            name="fsdp-policy-class",
            summary="`_FSDPPolicy` and `ModuleWrapPolicy.policy`, removed in torch 2.1",
            explanation="""\
`_FSDPPolicy` was the base class of wrap policies in torch 2.0. It was renamed to `_Policy` in 2.1, and a subclass
defines the method `_run_policy(root_module, ignored_modules, root_kwargs)` instead of the property `policy`.
Imports for annotations and `isinstance` are renamed; in a file with a subclass they are manual.
`ModuleWrapPolicy(...).policy` passed to FSDP becomes the object itself, which FSDP accepts since 2.0.""",
            applicability="safe or manual",
            removed="2.1",
            flags=(
                Example(
                    before=f"{_FROM_WRAP} {OLD_BASE}\n\ndef build(model, policy: {OLD_BASE}):\n    pass\n",
                    after=f"{_FROM_WRAP} {NEW_BASE}\n\ndef build(model, policy: {NEW_BASE}):\n    pass\n",
                ),
                Example(
                    before=f"{_FROM_WRAP} ModuleWrapPolicy\n{_IMPORT}\n"
                    "policy = ModuleWrapPolicy({Block})\nmodel = FSDP(model, auto_wrap_policy=policy.policy)\n",
                    after=f"{_FROM_WRAP} ModuleWrapPolicy\n{_IMPORT}\n"
                    "policy = ModuleWrapPolicy({Block})\nmodel = FSDP(model, auto_wrap_policy=policy)\n",
                ),
                Example(
                    before=f"{_FROM_WRAP} {OLD_BASE}\n\nclass Policy({OLD_BASE}):\n    pass\n",
                    note="a subclass",
                ),
            ),
            leaves=(f"{_FROM_WRAP} {NEW_BASE}\n", f"from mylib import {OLD_BASE}\n", "rate = agent.policy\n"),
            url="https://github.com/pytorch/pytorch/pull/104969",
        ),
        words=(OLD_BASE, "ModuleWrapPolicy"),
        check=check_base,
    ),
    Rule(
        RuleCard(
            code=EXEC_ORDER,
            name="param-exec-order-policy",
            summary="`ParamExecOrderWrapPolicy`, which only torch 1.13 has",
            explanation="""\
torch 1.13 could wrap by the order in which parameters are used: `ParamExecOrderWrapPolicy` with a `TracingConfig`.
torch 2.0 removed both without a replacement. The policy given as `init_policy` was the starting point; with it
alone the parameters are grouped in another way.""",
            applicability="manual",
            removed="2.0",
            flags=(Example(before=f"from {PACKAGE} import ParamExecOrderWrapPolicy\n"),),
            leaves=("from mylib import TracingConfig\n",),
            url="https://github.com/pytorch/pytorch/tree/v1.13.1/torch/distributed/fsdp",
        ),
        (),
        check,
        names=partial(old_names, EXEC_ORDER),
        calls=partial(traced, EXEC_ORDER),
    ),
    Rule(
        RuleCard(
            code="FSDP405",
            name="recursive-wrap-arguments",
            summary="a call of `_recursive_wrap` without `ignored_modules` and `ignored_params`",
            explanation="""\
The private `_recursive_wrap` requires `ignored_modules` and `ignored_params` since torch 1.12, before
`only_wrap_children`. A call in the order of 1.11 raises TypeError or passes its arguments to other parameters.""",
            applicability="manual",
            removed="1.12",
            flags=(Example(before=f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP)\n"),),
            leaves=(
                f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP, set(), set())\n",
                f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP, **options)\n",
            ),
            url="https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/wrap.py",
        ),
        scope="models",
        words=(_RECURSIVE,),
        check=check_recursive,
    ),
    Rule(
        RuleCard(
            code=OR_POLICY,
            name="moved-or-policy",
            summary="`_or_policy` imported from `fully_sharded_data_parallel`, removed there in torch 2.0",
            explanation="""\
Up to torch 1.13 `fully_sharded_data_parallel` imported `_or_policy` from `torch.distributed.fsdp.wrap`, so either
module had it. Since 2.0 only `wrap` has it, as on every release since 1.12.""",
            applicability="safe or manual",
            removed="2.0",
            flags=(
                Example(
                    before=f"from {FULL} import {_OR_POLICY}\n",
                    after=f"{_FROM_WRAP} {_OR_POLICY}\n",
                ),
                Example(
                    before=f"from {FULL} import BackwardPrefetch, {_OR_POLICY}\n",
                    after=f"{_FROM_WRAP} {_OR_POLICY}\nfrom {FULL} import BackwardPrefetch\n",
                ),
            ),
            leaves=(f"{_FROM_WRAP} {_OR_POLICY}\n",),
            url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/wrap.py",
        ),
        (),
        check,
        names=partial(old_names, OR_POLICY),
        calls=partial(traced, OR_POLICY),
    ),
)
