"""FSDP401: wrap policies that take `unwrapped_params`, which FSDP calls `nonwrapped_numel` since torch 2.0.

Source: catalogue wrap-policy-param-name (1.13.1 wrap.py:397, 2.0.0 wrap.py:364: policies are called by keyword).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from packaging.version import Version

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.names import PACKAGE, Meaning
from fsdp_migrate.facts.scopes import Scope
from fsdp_migrate.findings import Finding, Fix
from fsdp_migrate.rules.card import Example, Rule, RuleCard, Verdict, below_floor, finding, manual
from fsdp_migrate.rules.construction import PARTIAL, constructs, given
from fsdp_migrate.rules.policies_abroad import POLICY_ARGUMENTS, POSITIONS, abroad
from fsdp_migrate.rules.policy_both import takes_both
from fsdp_migrate.rules.policy_keys import read_by_key
from fsdp_migrate.rules.policy_names import places_of
from fsdp_migrate.source import Span

OLD = "unwrapped_params"
NEW = "nonwrapped_numel"
_SINCE = Version("2.0")
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
    for scope in facts.structure.module.nested():
        function = scope.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        place = _parameter(function) or read_by_key(facts, scope, OLD, NEW)
        if place is None or not _breaks(facts, function):
            continue
        uses = _Uses(facts, function)
        if (uses.policy or (_is_alike(function) and _is_torch_only(facts))) and not uses.elsewhere:
            if isinstance(place, ast.arg):
                yield _found(facts, card, function, place, uses)
            else:
                message = _message(function, "looks for")
                yield finding(facts, card, place, facts.statement(place), message, manual(f"look for `{NEW}`"))
    yield from _passed(facts, card)


def _found(facts: ModuleFacts, card: RuleCard, function: _Function, argument: ast.arg, uses: _Uses) -> Finding:
    place = _start_span(facts, argument)
    verdict = _verdict(facts, function, argument, uses)
    if verdict.fix is not None and below_floor(card, facts, function, fix=verdict.fix):
        verdict = takes_both(facts, function, argument, NEW) or verdict
    return finding(facts, card, place, facts.statement(function), _message(function, "takes"), verdict)


def _message(function: _Function, does: str) -> str:
    name = "a lambda" if isinstance(function, ast.Lambda) else f"`{function.name}`"
    return f"FSDP passes `{NEW}` to its wrap policy since torch 2.0, and {name} {does} `{OLD}`"


def _breaks(facts: ModuleFacts, node: ast.AST) -> bool:
    return any(release >= _SINCE for release in facts.gates.alive(node))


def _parameter(function: _Function) -> ast.arg | None:
    """The old parameter, None where there is none or the new name is accepted as well."""
    arguments = function.args
    everyone = [*arguments.args, *arguments.kwonlyargs]
    names = [argument.arg for argument in everyone]
    if OLD not in names or NEW in names:
        return None
    argument = everyone[names.index(OLD)]
    return None if arguments.kwarg is not None and _has_default(arguments, argument) else argument


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


class _Uses:
    """What a file does with a function: if FSDP gets it, its calls with the old keyword, doubts about the rest."""

    def __init__(self, facts: ModuleFacts, function: _Function) -> None:
        self.facts = facts
        self.policy = False
        self.elsewhere = False
        self.doubt: str | None = None
        self.calls: list[Span] = []
        self._seen: set[ast.AST] = set()
        if isinstance(function, ast.Lambda):
            self._flow(function)
        else:
            if function.decorator_list:
                self.doubt = "a decorator may call it by the old name"
            self._follow_name(facts.scope(function), function.name, function)

    def _follow_name(self, home: Scope, name: str, node: ast.AST) -> None:
        if home.is_class:
            self._follow_method(home, name)
            return
        if len(home.bindings.get(name, ())) != 1:
            self.doubt = self.doubt or f"`{name}` is bound more than once"
        elif home.is_module:
            self._note_abroad(name, made=False)
        if node in self._seen:
            return
        self._seen.add(node)
        for scope in home.nested():
            if scope.lookup(name) is home:
                for use in scope.uses.get(name, ()):
                    self._flow(use)

    def _note_abroad(self, name: str, *, made: bool) -> bool:
        """Note what other modules do with a function of this one, or with what its calls make: whether FSDP gets it."""
        found = abroad(self.facts, name, OLD, made=made)
        self.policy = self.policy or found.given
        if found.unclear and made:
            self._unclear()
        elif found.unclear:
            self.doubt = self.doubt or f"another module may call `{name}` by the old name"
        return found.given

    def _follow_method(self, home: Scope, name: str) -> None:
        cls = home.node
        if name == "__call__" and isinstance(cls, ast.ClassDef):
            if any(_calls_itself(node) for node in ast.walk(cls)):
                self._unclear()
            self._follow_results(cls)
            return
        self.doubt = self.doubt or f"`{name}` is an attribute of a class, whose callers are not all visible"
        for node in self.facts.structure.attributes:
            if node.attr == name and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                self._flow(node)

    def _follow_results(self, definition: ast.ClassDef | ast.FunctionDef) -> None:
        """Note where the instances of a class or the results of a function go."""
        home, name = self.facts.scope(definition), definition.name
        uses = [use for scope in home.nested() if scope.lookup(name) is home for use in scope.uses.get(name, ())]
        known = not home.is_class and not definition.decorator_list and len(home.bindings[name]) == 1
        given_abroad = known and home.is_module and self._note_abroad(name, made=True)
        if not known or not (uses or given_abroad):
            self._unclear()
        elif definition not in self._seen:
            self._seen.add(definition)
            for use in uses:
                parent = self.facts.structure.parents[use]
                if isinstance(parent, ast.Call) and parent.func is use:
                    self._flow(parent)
                else:
                    self._unclear()

    def _flow(self, node: ast.expr) -> None:
        """Note where the value of `node` goes."""
        parent = self.facts.structure.parents[node]
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            self._flow(parent)
        elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            target = parent.targets[0]
            home = self.facts.scope(parent).lookup(target.id)
            if home is not None:
                self._follow_value(home, target.id, parent)
        elif isinstance(parent, ast.Call):
            self._into_call(parent, node)
        elif isinstance(parent, ast.keyword):
            self._as_keyword(parent, node)
        elif isinstance(parent, (ast.List, ast.Tuple)):
            self._in_list(parent)
        elif isinstance(parent, ast.Return) and isinstance(factory := self.facts.function(parent), ast.FunctionDef):
            self._follow_results(factory)
        elif self._is_given(node):
            self.policy = True
        else:
            self._unclear()

    def _follow_value(self, home: Scope, name: str, assignment: ast.Assign) -> None:
        if assignment in self._seen:
            return
        self._seen.add(assignment)
        if home.is_class:
            self.doubt = self.doubt or f"`{name}` is an attribute of a class, whose callers are not all visible"
        for scope in home.nested():
            if scope.lookup(name) is home:
                for use in scope.uses.get(name, ()):
                    self._flow(use)

    def _into_call(self, call: ast.Call, node: ast.expr) -> None:
        if node is call.func:
            self.calls += [_start_span(self.facts, k) for k in call.keywords if k.arg == OLD]
        elif call.args[:1] == [node] and _qualified(self.facts, call.func) == PARTIAL:
            self.calls += [_start_span(self.facts, k) for k in call.keywords if k.arg == OLD]
            self._flow(call)
        elif constructs(self.facts, call.func) and call.args.index(node) in POSITIONS:
            self.policy = True
        else:
            self._unclear()

    def _as_keyword(self, keyword: ast.keyword, node: ast.expr) -> None:
        call = self.facts.structure.parents[keyword]
        assert isinstance(call, (ast.Call, ast.ClassDef))
        root = _qualified(self.facts, call.func) if isinstance(call, ast.Call) else None
        if root is not None and root.split(".")[0] in _RELATIVES:
            self.elsewhere = True
        elif keyword.arg in POLICY_ARGUMENTS[:2] or self._is_given(node) or _is_composable(keyword, root):
            self.policy = True
        else:
            self._unclear()

    def _is_given(self, node: ast.expr) -> bool:
        return any(one.value is node for one in given(self.facts) if one.name in POLICY_ARGUMENTS)

    def _unclear(self) -> None:
        self.doubt = self.doubt or "not every use of it is as a wrap policy of FSDP"

    def _in_list(self, display: ast.expr) -> None:
        keyword = self.facts.structure.parents[display]
        call = self.facts.structure.parents[keyword] if isinstance(keyword, ast.keyword) else None
        if isinstance(keyword, ast.keyword) and keyword.arg == "policies" and isinstance(call, ast.Call):
            names = [_qualified(self.facts, node) for node in (call.func, *call.args[:1])]
            if f"{PACKAGE}.wrap._or_policy" in names:
                self.policy = True
                return
        self._unclear()


def _calls_itself(node: ast.AST) -> bool:
    """Whether a method calls the instance, or what its base does when called, with the old keyword."""
    if not isinstance(node, ast.Call) or not any(keyword.arg == OLD for keyword in node.keywords):
        return False
    return getattr(node.func, "id", None) == "self" or getattr(node.func, "attr", None) == "__call__"


def _is_composable(keyword: ast.keyword, callee: str | None) -> bool:
    """Whether `keyword` is the policy of torch's composable FSDP1."""
    return keyword.arg == "policy" and callee is not None and callee.startswith("torch.distributed.")


def _qualified(facts: ModuleFacts, node: ast.expr) -> str | None:
    return facts.names.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _start_span(facts: ModuleFacts, node: ast.arg | ast.keyword) -> Span:
    start = facts.source.span(node).start
    return Span(start, start + len(OLD))


def _verdict(facts: ModuleFacts, function: _Function, argument: ast.arg, uses: _Uses) -> Verdict:
    advice = f"rename the parameter to `{NEW}`"
    if not uses.policy:
        return manual(f"nothing here shows that FSDP gets it: if so, {advice}")
    if uses.doubt is not None:
        return manual(f"{uses.doubt}: {advice}")
    scope = _scope_of(facts, function)
    spans = places_of(facts, scope, OLD, NEW)
    if isinstance(spans, str):
        return manual(f"{spans}: {advice} by hand")
    every = dict.fromkeys([_start_span(facts, argument), *spans, *uses.calls])
    return Verdict(Fix(tuple(Replace(span, NEW) for span in sorted(every))))


def _scope_of(facts: ModuleFacts, function: _Function) -> Scope:
    return next(scope for scope in facts.scope(function).children if scope.node is function)


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
        message = f"torch's wrap policies take `{NEW}` since torch 2.0, not `{OLD}`"
        verdict = Verdict(Fix((Replace(place, NEW),)))
        if any(keyword.arg == NEW for keyword in call.keywords):
            verdict = manual(f"`{NEW}` is passed as well: drop `{OLD}`")
        yield finding(facts, card, place, facts.statement(call), message, verdict)


def _is_built_in(facts: ModuleFacts, node: ast.expr) -> bool:
    meanings: Iterable[Meaning] = facts.names.meanings(node) if isinstance(node, (ast.Name, ast.Attribute)) else ()
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
        summary="a wrap policy with the parameter `unwrapped_params`",
        explanation=f"""\
FSDP calls a wrap policy by keyword. Up to torch 1.13 the third keyword is `{OLD}`, since 2.0 it is `{NEW}`; the
value is the same, the number of parameters not wrapped yet. A policy with the old name raises TypeError when the
model is built, and there was never a warning. One that looks the old name up in its `**kwargs` is reported, too.

The parameter and its uses are renamed where everything that this file does with the function is to hand it to FSDP
(also through `functools.partial`, a variable, a dict of arguments or `_or_policy`). Where torch 1.x is supported too,
the function gets the new parameter beside the old one, both optional, and takes the value of the one that is given.""",
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
                before=_BEFORE,
                after=_BEFORE.replace(f"{OLD})", f"{OLD}=None, {NEW}=None)").replace(
                    "    return", f"    if {OLD} is None:\n        {OLD} = {NEW}\n    return", 1
                ),
                note="with torch 1.x in the supported range",
                torch=">=1.12",
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
    needles=(OLD,),
    check=check,
)
