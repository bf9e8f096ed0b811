"""FSDP401: wrap policies that take `unwrapped_params`, which FSDP calls `nonwrapped_numel` since torch 2.0.

Source: catalogue wrap-policy-param-name (1.13.1 wrap.py:397, 2.0.0 wrap.py:364: policies are called by keyword).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.construction import PARTIAL, constructions, given
from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, finding, manual
from fsdp_migrate.source import Span

OLD = "unwrapped_params"
NEW = "nonwrapped_numel"
_SINCE = Version("2.0")
_POLICY_ARGUMENTS = ("auto_wrap_policy", "fsdp_auto_wrap_policy")
_POSITIONS = slice(3, 5)  # of the policy: torch 1.11, 1.12 and newer
_BUILT_IN = frozenset(
    f"{PACKAGE}.wrap.{name}"
    for name in (
        "_or_policy",
        "default_auto_wrap_policy",
        "lambda_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "transformer_auto_wrap_policy",
    )
)
# Their policies are still called with the old name.
_RELATIVES = ("fairscale", "torch_xla")

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find policies of this file with the old parameter, and calls that pass it to torch's own policies."""
    ways = _ways_into_fsdp(facts)
    for scope in facts.structure.module.nested():
        function = scope.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        argument = _parameter(function)
        key = None if argument is not None else _key(facts, scope, function)
        if (argument is None and key is None) or not _breaks(facts, function):
            continue
        is_given = any(function in (way, _definition(facts, way)) for way in ways)
        name = "a lambda" if isinstance(function, ast.Lambda) else f"`{function.name}`"
        message = f"the wrap-policy parameter `{OLD}` was renamed to `{NEW}` in torch 2.0, and {name}"
        if key is not None and is_given:
            advice = manual(f"read `{NEW}`")
            yield finding(facts, card, key, facts.statement(key), f"{message} still reads the old name", advice)
        if argument is not None and (is_given or (_is_alike(function) and _is_torch_only(facts))):
            place, verdict = _start_span(facts, argument), _verdict(facts, scope, argument, ways, is_given=is_given)
            yield finding(facts, card, place, facts.statement(function), f"{message} still has the old name", verdict)
    yield from _passed(facts, card)


def _breaks(facts: ModuleFacts, node: ast.AST) -> bool:
    return any(release >= _SINCE for release in facts.gates.alive(node))


def _parameter(function: _Function) -> ast.arg | None:
    """The old parameter, None where there is none or where the function can do without it."""
    arguments = function.args
    everyone = [*arguments.args, *arguments.kwonlyargs]
    names = [argument.arg for argument in everyone]
    if OLD not in names:
        return None
    argument = everyone[names.index(OLD)]
    takes_new = NEW in names or arguments.kwarg is not None
    return None if takes_new and _has_default(arguments, argument) else argument


def _key(facts: ModuleFacts, scope: Scope, function: _Function) -> ast.Constant | None:
    """The string by which a function looks the old name up in its `**kwargs`, None where it looks for the new one."""
    if function.args.kwarg is None:
        return None
    strings = [string for string in facts.structure.strings if string.value in (OLD, NEW)]
    inside = [string for string in strings if scope in facts.scope(string).enclosing()]
    keys = [string for string in inside if _is_looked_up(facts, string, function.args.kwarg.arg)]
    return keys[0] if keys and all(string.value == OLD for string in inside) else None


def _is_looked_up(facts: ModuleFacts, string: ast.Constant, name: str) -> bool:
    """Whether a string is a key for the dict in `name`: an item, or an argument of a method."""
    parent = facts.structure.parents[string]
    owner = getattr(parent.func, "value", None) if isinstance(parent, ast.Call) else getattr(parent, "value", None)
    return isinstance(owner, ast.Name) and owner.id == name


def _has_default(arguments: ast.arguments, argument: ast.arg) -> bool:
    optional = arguments.args[len(arguments.args) - len(arguments.defaults) :] if arguments.defaults else []
    keywords = [a for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults) if default is not None]
    return argument in (*optional, *keywords)


def _is_alike(function: _Function) -> bool:
    names = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    return {"module", "recurse"} <= names


def _is_torch_only(facts: ModuleFacts) -> bool:
    """Whether the file has something of torch's FSDP, and nothing of its relatives."""
    targets = facts.fsdp.imported
    return any(target.startswith(PACKAGE) for target in targets) and not any(
        target.split(".")[0] in _RELATIVES for target in targets
    )


def _ways_into_fsdp(facts: ModuleFacts) -> set[ast.expr]:
    """The expressions whose value FSDP gets as its policy, by names, `partial` and choices.

    Whatever else takes an argument of this name (a trainer, a strategy) hands it to FSDP.
    """
    waiting = [one.value for one in given(facts) if one.name in _POLICY_ARGUMENTS]
    for call in facts.structure.calls:
        policies = [keyword.value for keyword in call.keywords if keyword.arg in _POLICY_ARGUMENTS]
        if policies and (_qualified(facts, call.func) or "").split(".")[0] not in _RELATIVES:
            waiting += policies
    waiting += [value for call in constructions(facts) for value in call.args[_POSITIONS]]
    found: set[ast.expr] = set()
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        if isinstance(value, ast.IfExp):
            waiting += [value.body, value.orelse]
        elif isinstance(value, ast.Name):
            waiting += facts.names.definitions(value)
        elif isinstance(value, ast.Call) and value.args and _qualified(facts, value.func) == PARTIAL:
            waiting.append(value.args[0])
            # `partial(_or_policy, policies=[...])`
            lists = [keyword.value for keyword in value.keywords if keyword.arg == "policies"]
            waiting += [one for part in lists if isinstance(part, (ast.List, ast.Tuple)) for one in part.elts]
    return found


def _definition(facts: ModuleFacts, node: ast.expr) -> ast.AST | None:
    return facts.names.definition(node) if isinstance(node, ast.Name) else None


def _qualified(facts: ModuleFacts, node: ast.expr) -> str | None:
    return facts.names.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _start_span(facts: ModuleFacts, node: ast.arg | ast.keyword) -> Span:
    start = facts.source.span(node).start
    return Span(start, start + len(OLD))


def _verdict(facts: ModuleFacts, scope: Scope, argument: ast.arg, ways: set[ast.expr], *, is_given: bool) -> Verdict:
    function = scope.node
    advice = f"rename the parameter to `{NEW}`"
    if any(isinstance(binding.node, ast.arg) for binding in scope.bindings.get(NEW, ())):
        return manual(f"the function also has `{NEW}`: remove `{OLD}`")
    if not is_given:
        return manual(f"it is not visible whether FSDP gets this function: {advice} if it does")
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if function.decorator_list:
            return manual(f"a decorator may call it with the old name: {advice}")
        other = _other_use(facts, function, ways)
        if other is not None:
            return manual(f"line {other.lineno} uses it for something other than FSDP: {advice}")
    elif function not in ways:
        return manual(f"not every use passes it to FSDP as a wrap policy: {advice}")
    spans = _places_of(facts, scope)
    if isinstance(spans, str):
        return manual(f"{spans}: {advice} by hand")
    every = sorted({_start_span(facts, argument), *spans})
    return Verdict(Fix(tuple(Replace(span, NEW) for span in every)))


def _other_use(
    facts: ModuleFacts, function: ast.FunctionDef | ast.AsyncFunctionDef, ways: set[ast.expr]
) -> ast.expr | ast.stmt | None:
    """A use of the function that is no way into FSDP and no call by position."""
    home = facts.scope(function)
    project = facts.project
    if not home.is_class and len(home.bindings[function.name]) == 1:
        for scope in home.nested():
            for use in scope.uses.get(function.name, ()) if scope.lookup(function.name) is home else ():
                parent = facts.structure.parents[use]
                call = parent if isinstance(parent, ast.Call) and parent.func is use else None
                if use not in ways and (call is None or any(k.arg in (OLD, None) for k in call.keywords)):
                    return use
        if not (home.is_module and project is not None and project.is_imported(function.name)):
            return None
    return function


def _places_of(facts: ModuleFacts, scope: Scope) -> list[Span] | str:
    """Every place in a function that names its old parameter, or why they cannot all be renamed."""
    nodes: list[ast.Name] = []
    for inner in scope.nested():
        if NEW in inner.uses or NEW in inner.bindings:
            return f"the function already uses `{NEW}`"
        if OLD in inner.declared_nonlocal or OLD in inner.declared_global:
            return f"an inner function declares `{OLD}`"
        if inner.lookup(OLD) is scope:
            nodes += inner.uses.get(OLD, ())
    bound = [binding.node for binding in scope.bindings[OLD]]
    if any(not isinstance(node, (ast.Name, ast.arg)) for node in bound):
        return f"the function binds `{OLD}` in other ways than by assignment"
    nodes += [node for node in bound if isinstance(node, ast.Name)]
    if any(facts.template_around(node) is not None for node in nodes):
        return f"an f-string in it uses `{OLD}`"
    if any(scope in facts.scope(string).enclosing() for string in facts.structure.strings if string.value == OLD):
        return f"a string in it names `{OLD}`"
    return [facts.source.span(node) for node in nodes]


def _passed(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Calls and partials of torch's own policies that pass the old keyword."""
    for call in facts.structure.calls:
        policy = call.func
        if call.args and _qualified(facts, call.func) == PARTIAL:
            policy = call.args[0]
        keywords = [keyword for keyword in call.keywords if keyword.arg == OLD]
        if not keywords or not _is_built_in(facts, policy) or not _breaks(facts, call):
            continue
        place = _start_span(facts, keywords[0])
        message = f"the wrap-policy parameter `{OLD}` was renamed to `{NEW}` in torch 2.0"
        verdict = Verdict(Fix((Replace(place, NEW),)))
        if any(keyword.arg == NEW for keyword in call.keywords):
            verdict = manual(f"`{NEW}` is passed, too: remove `{OLD}`")
        yield finding(facts, card, place, facts.statement(call), message, verdict)


def _is_built_in(facts: ModuleFacts, node: ast.expr) -> bool:
    meanings = facts.names.meanings(node) if isinstance(node, (ast.Name, ast.Attribute)) else ()
    symbols = {meaning.symbol for meaning in meanings}
    return bool(symbols) and symbols <= _BUILT_IN


_BEFORE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def big(module, recurse, unwrapped_params):
    return True if recurse else unwrapped_params >= 1000

def build(model):
    return FSDP(model, auto_wrap_policy=big)
"""

RULE = Rule(
    RuleCard(
        code="FSDP401",
        name="policy-unwrapped-params",
        summary="the wrap-policy parameter `unwrapped_params`, renamed to `nonwrapped_numel` in torch 2.0",
        explanation="""\
FSDP calls a wrap policy by keyword. The third keyword, `unwrapped_params`, was renamed to `nonwrapped_numel` in
torch 2.0 without a deprecation; the value is the same, the number of parameters that are not wrapped yet. A policy
with the old name raises TypeError when the model is built. A policy that reads the old name from its `**kwargs` is
reported, too.

The fix renames the parameter and its uses if the function is only passed to FSDP: by its name, through
`functools.partial`, a variable or a dict of arguments. Otherwise it is manual.""",
        applicability="safe or manual",
        removed="2.0",
        floor="2.0",
        flags=(
            Example(before=_BEFORE, after=_BEFORE.replace(OLD, NEW)),
            Example(
                before="import torch.distributed.fsdp as fsdp\n\n"
                f"def build(model):\n"
                f"    policy = lambda module, recurse, {OLD}: recurse or {OLD} > 9\n"
                "    return fsdp.FullyShardedDataParallel(model, auto_wrap_policy=policy)\n",
                after="import torch.distributed.fsdp as fsdp\n\n"
                f"def build(model):\n"
                f"    policy = lambda module, recurse, {NEW}: recurse or {NEW} > 9\n"
                "    return fsdp.FullyShardedDataParallel(model, auto_wrap_policy=policy)\n",
            ),
            Example(
                before="from torch.distributed.fsdp import FullyShardedDataParallel\n\n"
                f"def big(module, recurse, {OLD}):\n    return recurse or {OLD} > 9\n",
                note="other files use it",
            ),
        ),
        leaves=(
            _BEFORE.replace(OLD, NEW),
            "from fairscale.nn import FullyShardedDataParallel as FSDP\n\n"
            f"def big(module, recurse, {OLD}):\n    return recurse or {OLD} > 9\n\n"
            "model = FSDP(module, auto_wrap_policy=big)\n",
            "from torch.distributed.fsdp import FullyShardedDataParallel\n\n"
            f"def big(module, recurse, {OLD}=0, **kwargs):\n    return recurse or kwargs.get('{NEW}', {OLD}) > 9\n",
        ),
        url="https://github.com/pytorch/pytorch/pull/88450",
    ),
    words=(OLD,),
    check=check,
)
