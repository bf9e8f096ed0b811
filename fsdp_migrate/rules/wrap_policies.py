"""FSDP402-406: names of wrap policies that were renamed, moved or removed.

Sources: catalogue wrap-default-policy, wrap-policy-classes, wrap-or-policy, wrap-param-exec-order, wrap-recursive-wrap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from fsdp_migrate.edits import Edit, EditImport, Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, below_floor, finding, manual
from fsdp_migrate.rules.moved_imports import kept_both
from fsdp_migrate.rules.releases import import_binding, uses_of
from fsdp_migrate.source import Span
from fsdp_migrate.torch_api.data import exists, signature

WRAP = f"{PACKAGE}.wrap"
FULL = f"{PACKAGE}.fully_sharded_data_parallel"
DEFAULT, SIZE_BASED = "default_auto_wrap_policy", "size_based_auto_wrap_policy"
OLD_BASE, NEW_BASE = "_FSDPPolicy", "_Policy"
_EXEC_ORDER = ("ParamExecOrderWrapPolicy", "TracingConfig")
_RECURSIVE = "_recursive_wrap"
_OR_POLICY = "_or_policy"


class _Place(NamedTuple):
    """Where an import or an attribute chain names a symbol that some release that runs it lacks."""

    node: ast.ImportFrom | ast.Attribute
    alias: ast.alias | None
    path: str


def _places(facts: ModuleFacts, card: RuleCard, name: str) -> Iterator[_Place]:
    """Where the file takes `name` from torch's FSDP, and a release that gets there has removed it, as the card says."""
    since = Version(card.removed or "0")
    for statement in facts.structure.imports:
        if isinstance(statement, ast.ImportFrom) and statement.level == 0 and _is_torch(statement.module):
            for alias in statement.names:
                path = f"{statement.module}.{name}"
                if alias.name == name and _lacking(facts, statement, path, since):
                    yield _Place(statement, alias, path)
    for node in facts.structure.attributes:
        if node.attr == name and isinstance(node.ctx, ast.Load):
            qualified = facts.names.qualified(node)
            if qualified is None or not _is_torch(qualified.rpartition(".")[0]):
                continue
            if _lacking(facts, node, qualified, since):
                yield _Place(node, None, qualified)


def _is_torch(module: str | None) -> bool:
    return module in (PACKAGE, WRAP, FULL)


def _lacking(facts: ModuleFacts, node: ast.stmt | ast.Attribute, path: str, since: Version) -> bool:
    if isinstance(node, ast.stmt) and facts.gates.guarded_import(node):
        return False
    return any(release >= since and exists(path, release) is False for release in facts.gates.alive(node))


def _renames(facts: ModuleFacts, card: RuleCard, old: str, new: str, message: str) -> Iterator[Finding]:
    for place in _places(facts, card, old):
        span = facts.source.span(place.alias or place.node)
        verdict = _through_project(facts, place, new) or Verdict(Fix(_rename(facts, card, place, old, new)))
        if place.alias is not None and below_floor(card, facts, place.node):
            names = facts.scope(place.node).bindings[place.alias.asname or old]
            bindings = [binding for binding in names if binding.node is place.node]
            verdict = kept_both(facts, {bindings[0]: f"{place.path.rpartition('.')[0]}.{new}"})
        yield finding(facts, card, span, facts.statement(place.node), message, verdict)


def _through_project(facts: ModuleFacts, place: _Place, new: str) -> Verdict | None:
    """Why an attribute of a module of the project keeps its name, None where it is torch's own."""
    if isinstance(place.node, ast.ImportFrom) or _is_torch(facts.names.qualified(place.node.value)):
        return None
    return manual(f"`{ast.unparse(place.node)}` comes from a module of the project: import `{new}` from `{WRAP}`")


def _rename(facts: ModuleFacts, card: RuleCard, place: _Place, old: str, new: str) -> tuple[Edit, ...]:
    """The edits that give a symbol its new name at one place; where its uses cannot follow, it keeps the old alias."""
    source = facts.source
    if place.alias is None:
        end = source.span(place.node).end
        return (Replace(Span(end - len(old), end), new),)
    start = source.span(place.alias).start
    name = Span(start, start + len(old))
    if place.alias.asname is not None:
        return (Replace(name, new),)
    assert isinstance(place.node, ast.ImportFrom)
    scope = facts.scope(place.node)
    if old in scope.declared_global:
        return (Replace(name, f"{new} as {old}"),)
    binding = next(binding for binding in scope.bindings[old] if binding.node is place.node)
    uses = list(uses_of(binding))
    renamed = tuple(Replace(source.span(use), new) for use in uses)
    if not _can_rename(facts, binding, uses) or below_floor(card, facts, *uses):
        return (Replace(name, f"{new} as {old}"),)
    if any(alias.name == new and alias.asname is None for alias in place.node.names):
        return (EditImport(source.span(place.node), remove=(old,), unit=facts.indent_unit), *renamed)
    if _taken(binding, new):
        return (Replace(name, f"{new} as {old}"),)
    return (Replace(name, new), *renamed)


def _can_rename(facts: ModuleFacts, binding: Binding, uses: Sequence[ast.Name]) -> bool:
    """Whether the name is this import's alone, and every use of it can be seen and rewritten."""
    removable = import_binding(facts, binding).removable
    return removable and not any(facts.template_around(use) is not None for use in uses)


def _taken(binding: Binding, new: str) -> bool:
    home = binding.scope
    inside = any(new in scope.bindings or new in scope.uses for scope in home.nested())
    return inside or home.lookup(new) is not None


def check_default(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the size-based policy under its name of torch 1.11."""
    yield from _renames(facts, card, DEFAULT, SIZE_BASED, f"`{DEFAULT}` is `{SIZE_BASED}` since torch 1.12")


def check_base(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the policy base class of torch 2.0, and the property that its `ModuleWrapPolicy` had."""
    message = f"`{OLD_BASE}` is gone since torch 2.1: the base of wrap policies is `{NEW_BASE}`"
    for place in _places(facts, card, OLD_BASE):
        span = facts.source.span(place.alias or place.node)
        verdict = _base_verdict(facts, card, place)
        yield finding(facts, card, span, facts.statement(place.node), message, verdict)
    yield from _policy_property(facts, card)


def _base_verdict(facts: ModuleFacts, card: RuleCard, place: _Place) -> Verdict:
    if any(_derives(facts, base) for cls in _classes(facts) for base in cls.bases):
        return manual(f"a subclass of `{NEW_BASE}` has `_run_policy` in the place of `policy`: rewrite it by hand")
    if any(node.attr == "policy" for node in facts.structure.attributes):
        return manual(f"the file reads `.policy`, which a `{NEW_BASE}` does not have: rename and rewrite it by hand")
    if not place.path.startswith(WRAP):
        return manual(f"import `{NEW_BASE}` from `{WRAP}`")
    return _through_project(facts, place, NEW_BASE) or Verdict(Fix(_rename(facts, card, place, OLD_BASE, NEW_BASE)))


def _classes(facts: ModuleFacts) -> Iterator[ast.ClassDef]:
    for scope in facts.structure.module.nested():
        if isinstance(scope.node, ast.ClassDef):
            yield scope.node


def _derives(facts: ModuleFacts, base: ast.expr) -> bool:
    symbols = facts.names.symbols(base) if isinstance(base, (ast.Name, ast.Attribute)) else ()
    return any(symbol is not None and symbol.rpartition(".")[2] == OLD_BASE for symbol in symbols)


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
            verdict = manual("FSDP takes the policy object itself: drop `.policy`")
        message = "`ModuleWrapPolicy` has no `policy` since torch 2.1: FSDP takes the object itself"
        yield finding(facts, card, node, facts.statement(node), message, verdict)


def _is_module_policy(facts: ModuleFacts, node: ast.expr) -> bool:
    value = facts.names.value(node) if isinstance(node, ast.Name) else node
    return isinstance(value, ast.Call) and facts.names.qualified(value.func) == f"{WRAP}.ModuleWrapPolicy"


def _goes_to_fsdp(facts: ModuleFacts, node: ast.expr) -> bool:
    keyword = facts.structure.parents[node]
    call = facts.structure.parents[keyword] if isinstance(keyword, ast.keyword) else None
    named = isinstance(keyword, ast.keyword) and keyword.arg == "auto_wrap_policy"
    return named and isinstance(call, ast.Call) and facts.fsdp.is_class(call.func)


def check_removed(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find the policy by execution order and its configuration, which only torch 1.13 had."""
    for name in _EXEC_ORDER:
        for place in _places(facts, card, name):
            message = f"`{name}` exists in torch 1.13 only"
            verdict = manual("nothing takes its place, and its `init_policy` alone wraps in other groups")
            span = facts.source.span(place.alias or place.node)
            yield finding(facts, card, span, facts.statement(place.node), message, verdict)


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
            message = f"`{_RECURSIVE}` needs `{lacking[0]}` since torch 1.12"
            verdict = manual("it is private: pass `ignored_modules=set(), ignored_params=set()`, or let FSDP wrap")
            yield finding(facts, card, call.func, facts.statement(call), message, verdict)


def _needed(facts: ModuleFacts, call: ast.Call) -> list[str]:
    """The parameters without a default that are not among the positions of `call`, on some release that runs it."""
    for release in sorted(facts.gates.alive(call), reverse=True):
        parameters = signature(f"{WRAP}.{_RECURSIVE}", release) or ()
        needed = [p.name for p in parameters[len(call.args) :] if not p.has_default and p.name.startswith("ignored")]
        if needed:
            return needed
    return []


def check_moved(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find `_or_policy` taken from the module that imported it until torch 1.13."""
    for place in _places(facts, card, _OR_POLICY):
        span = facts.source.span(place.alias or place.node)
        message = f"`{place.path}` is gone since torch 2.0: the place is `{WRAP}.{_OR_POLICY}`"
        yield finding(facts, card, span, facts.statement(place.node), message, _moved_verdict(facts, place))


def _moved_verdict(facts: ModuleFacts, place: _Place) -> Verdict:
    node = place.node
    if not isinstance(node, ast.ImportFrom) or len(node.names) > 1:
        return manual(f"import it from `{WRAP}`")
    text = facts.source.segment(node)
    where = text.index(node.module or "")
    start = facts.source.span(node).start + len(text[:where].encode())
    return Verdict(Fix((Replace(Span(start, start + len(node.module or "")), WRAP),)))


_FROM_WRAP = f"from {WRAP} import"
_IMPORT = f"from {PACKAGE} import FullyShardedDataParallel as FSDP\n"

DEFAULT_POLICY = Rule(
    RuleCard(
        code="FSDP402",
        name="default-auto-wrap-policy",
        summary=f"`{DEFAULT}`, which is `{SIZE_BASED}` since torch 1.12",
        explanation=f"""\
torch 1.11 called the policy that wraps by number of parameters `{DEFAULT}`. Since 1.12 it is `{SIZE_BASED}`, with
the same arguments and the same function attributes, and the old name cannot be imported. Every use is renamed;
where others may rely on the old name, only the import changes and keeps it as its alias.""",
        applicability="safe",
        removed="1.12",
        floor="1.12",
        flags=(
            Example(
                before=f"{_FROM_WRAP} {DEFAULT}\n\npolicy = functools.partial({DEFAULT}, min_num_params=1000)\n",
                after=f"{_FROM_WRAP} {SIZE_BASED}\n\npolicy = functools.partial({SIZE_BASED}, min_num_params=1000)\n",
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
    needles=(DEFAULT,),
    check=check_default,
)

BASE_CLASS = Rule(
    RuleCard(
        code="FSDP403",
        name="fsdp-policy-class",
        summary=f"`{OLD_BASE}` and `ModuleWrapPolicy.policy`, which only torch 2.0 has",
        explanation=f"""\
`{OLD_BASE}` was the base class of wrap policies in torch 2.0. Since 2.1 it is `{NEW_BASE}`, and a subclass has a
method `_run_policy(root_module, ignored_modules, root_kwargs)` in the place of the property `policy`. Imports for
annotations and `isinstance` are renamed; in a file with a subclass they are reported.
`ModuleWrapPolicy(...).policy` on its way to FSDP becomes the object itself, which FSDP takes since 2.0.""",
        applicability="safe or manual",
        removed="2.1",
        floor="2.1",
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
    needles=(OLD_BASE, "ModuleWrapPolicy"),
    check=check_base,
)

EXEC_ORDER = Rule(
    RuleCard(
        code="FSDP404",
        name="param-exec-order-policy",
        summary="`ParamExecOrderWrapPolicy`, which only torch 1.13 has",
        explanation="""\
torch 1.13 could wrap by the order in which parameters are used: `ParamExecOrderWrapPolicy` with a `TracingConfig`.
torch 2.0 removed both and has nothing in their place. The policy given as `init_policy` is where it started from;
with it alone the parameters are grouped differently.""",
        applicability="manual",
        removed="2.0",
        flags=(Example(before=f"from {PACKAGE} import ParamExecOrderWrapPolicy\n"),),
        leaves=("from mylib import TracingConfig\n",),
        url="https://github.com/pytorch/pytorch/tree/v1.13.1/torch/distributed/fsdp",
    ),
    needles=_EXEC_ORDER,
    check=check_removed,
)

RECURSIVE_WRAP = Rule(
    RuleCard(
        code="FSDP405",
        name="recursive-wrap-arguments",
        summary="a call of `_recursive_wrap` without `ignored_modules` and `ignored_params`",
        explanation="""\
The private `_recursive_wrap` requires `ignored_modules` and `ignored_params` since torch 1.12, in front of
`only_wrap_children`. A call in the order of 1.11 raises TypeError or hands its arguments to others.""",
        applicability="manual",
        removed="1.12",
        flags=(Example(before=f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP)\n"),),
        leaves=(
            f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP, set(), set())\n",
            f"{_FROM_WRAP} {_RECURSIVE}\n\n{_RECURSIVE}(model, policy, FSDP, **options)\n",
        ),
        url="https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/wrap.py",
    ),
    needles=(_RECURSIVE,),
    check=check_recursive,
)

MOVED_OR_POLICY = Rule(
    RuleCard(
        code="FSDP406",
        name="moved-or-policy",
        summary="`_or_policy` imported from `fully_sharded_data_parallel`",
        explanation=f"""\
Up to torch 1.13 `fully_sharded_data_parallel` imported `{_OR_POLICY}` from `{WRAP}`, and so it could be taken from
either. Since 2.0 only the latter has it, as every release since 1.12 does.""",
        applicability="safe or manual",
        removed="2.0",
        floor="1.12",
        flags=(
            Example(
                before=f"from {FULL} import {_OR_POLICY}\n",
                after=f"{_FROM_WRAP} {_OR_POLICY}\n",
            ),
            Example(before=f"from {FULL} import BackwardPrefetch, {_OR_POLICY}\n", note="among other names"),
        ),
        leaves=(f"{_FROM_WRAP} {_OR_POLICY}\n",),
        url="https://github.com/pytorch/pytorch/blob/v2.0.0/torch/distributed/fsdp/wrap.py",
    ),
    needles=(_OR_POLICY,),
    check=check_moved,
)
