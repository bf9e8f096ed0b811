"""The module that a construction wraps, under the names that it has besides.

FSDP1 leaves it as it is inside of the wrapper; FSDP2 shards it in place. So what is done with it later is done with the
model. What is made of its parameters before is looked at in `optimizers`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError
from fsdp_migrate.facts.objects import Reference, Value, follow
from fsdp_migrate.facts.project_code import Class, Function, Sort
from fsdp_migrate.facts.scopes import TRIES, FunctionNode, Kind
from fsdp_migrate.targets.fsdp2.arguments import written_out
from fsdp_migrate.targets.fsdp2.closures import MODEL
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion, Options
from fsdp_migrate.targets.fsdp2.instances import check_inside
from fsdp_migrate.targets.fsdp2.policies import AtRunTime
from fsdp_migrate.targets.fsdp2.use import PART, Use
from fsdp_migrate.targets.fsdp2.uses import convert_use

_DEEPEST = 6


def convert_plain_modules(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Add what the uses of the wrapped modules need that are no uses of the models.

    Where a model gets lost, its module is not followed too.
    """
    if closure.escapes:
        return
    models = frozenset(one.node for one in (*closure.references, *closure.passed))
    known = set(models)
    for construction in closure.constructions:
        origin = _Origin(conversion, construction)
        followed = follow(origin.sources, nature=MODEL, code=conversion.code, others=False)
        origin.passed = {one.node for one in followed.passed}
        late = any(one.node not in models and origin.is_given_late(one) for one in followed.passed)
        for one in followed.references:
            if one.node in known or origin.is_given(one.node):
                if late and one.node in models:  # a function gets the model and, later, the module
                    check_inside(Use(conversion, closure, one, options))
                continue
            known.add(one.node)
            if one.node not in conversion.settled and not origin.is_before(one.facts, one.node):
                convert_use(conversion, closure, one._replace(others=()), options, inside=True)


class _Origin:
    """Where the module of a construction comes from, and what runs before it is wrapped."""

    def __init__(self, conversion: Conversion, construction: Construction) -> None:
        self.code = conversion.code
        self.levels: dict[ast.AST, list[ast.AST]] = {}
        self.given: set[ast.AST] = set()
        self.passed: set[ast.expr] = set()  # the expressions that give the module to functions, once it is followed
        self.sources: tuple[Value, ...] = ()
        facts, call = construction
        try:
            module = written_out(facts, call).module
        except (AtRunTime, BindingError):
            return
        self._reach(facts, call)
        self.given.add(module)
        self.sources = tuple(dict.fromkeys(self._sources(facts, module, _DEEPEST)))

    def _reach(self, facts: ModuleFacts, node: ast.AST) -> None:
        self.levels.setdefault(facts.function(node), []).append(node)

    def is_given(self, node: ast.AST) -> bool:
        """Whether an expression is what is wrapped, or leads there."""
        return node in self.given

    def is_given_late(self, one: Reference) -> bool:
        """Whether an expression may give the module to a function after it is wrapped."""
        is_argument = isinstance(one.facts.structure.parents[one.node], (ast.Call, ast.keyword))
        return is_argument and not self.is_given(one.node) and not self.is_before(one.facts, one.node)

    def _sources(self, facts: ModuleFacts, node: ast.expr, steps: int) -> Iterator[Value]:
        """The expressions that make the object of an expression, as far back as they can be seen."""
        if steps == 0:
            return
        if isinstance(node, ast.Name):
            for binding in self.code.bindings(facts, node):
                if binding.value is not None:
                    yield from self._sources(facts, binding.value, steps - 1)
                elif binding.kind is Kind.PARAMETER:
                    yield from self._arguments(facts, binding.node, steps - 1)
        elif isinstance(node, ast.Attribute):
            for owner in self.code.origins(facts, node.value):
                if owner.sort is Sort.INSTANCE and isinstance(owner.node, ast.ClassDef):
                    for value in self.code.stores(Class(owner.facts, owner.node), node.attr):
                        yield from self._sources(value.facts, value.node, steps - 1)
        elif isinstance(node, ast.IfExp):
            yield from self._sources(facts, node.body, steps)
            yield from self._sources(facts, node.orelse, steps)
        else:
            yield Value(facts, node)
            method = node.func if isinstance(node, ast.Call) else None
            if isinstance(method, ast.Attribute) and method.attr in PART.methods:
                yield from self._sources(facts, method.value, steps - 1)

    def _arguments(self, facts: ModuleFacts, parameter: ast.AST, steps: int) -> Iterator[Value]:
        """What the callers of a function give for a parameter."""
        node = facts.structure.parents[facts.structure.parents[parameter]]
        if not isinstance(parameter, ast.arg) or not isinstance(node, FunctionNode):
            return
        function = Function(facts, node)
        for site in self.code.callers(function).sites:
            given = self.code.argument(site, function, parameter)
            if given is not None:
                self._reach(site.facts, site.call)
                self.given.add(given.node)
                yield from self._sources(given.facts, given.node, steps)
        for load in self.code.loads(facts.structure.starts[parameter], parameter.arg):
            yield Value(facts, load)

    def is_before(self, facts: ModuleFacts, node: ast.AST, steps: int = _DEEPEST) -> bool:
        """Whether a place is certainly over when the module is wrapped."""
        function = facts.function(node)
        if function in self.levels:
            reaching = self.code.reaching(facts)
            return not any(
                reaching.may_follow(one, node) and not _leaves_without(facts, one, node)
                for one in self.levels[function]
            )
        if steps == 0 or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        callers = self.code.callers(Function(facts, function))
        if not callers.sites or callers.elsewhere or callers.hidden:
            return False
        given = [site for site in callers.sites if not self.passed.isdisjoint(_arguments_of(site.call))]
        return all(self.is_before(site.facts, site.call, steps - 1) for site in given or callers.sites)


def _arguments_of(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _leaves_without(facts: ModuleFacts, one: ast.AST, node: ast.AST) -> bool:
    """Whether the function is left behind a place before another one can be reached."""
    child: ast.AST = facts.statement(one)
    while not isinstance(child, (*FunctionNode, *TRIES, ast.Module)):
        if isinstance(child, (ast.Return, ast.Raise)):
            return not any(part is node for part in ast.walk(child))
        parent = facts.structure.parents[child]
        if isinstance(parent, TRIES):
            return False
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list) and child in block and isinstance(block[-1], (ast.Return, ast.Raise)):
                behind = block[block.index(child) :]
                return not any(part is node for statement in behind for part in ast.walk(statement))
        child = parent
    return False
