"""Who uses a state dict: rank 0 alone, or other ranks too.

FULL_STATE_DICT for rank 0 leaves other ranks more than nothing in some models: what FSDP ignores, buffers of a root
without parameters of its own [02b], and under NO_SHARD and HYBRID_SHARD the whole dict [27b 28b]. The new call leaves
them `{}`. Where rank 0 alone uses the dict, that makes no difference.
"""

from __future__ import annotations

import ast

from fsdp_migrate.code.state_dicts.functions import Function, called, calls_of, parameter_of, reads_of
from fsdp_migrate.code.state_dicts.ranks import runs_on_rank_0_only, tested_in_part
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

_MOST_STEPS = 8
# Methods and functions that give what they get again, item by item.
_PASSING_METHODS = frozenset({"items", "keys", "values", "copy"})
_PASSING_FUNCTIONS = frozenset(
    """
    builtins.dict builtins.list builtins.tuple builtins.sorted copy.copy collections.OrderedDict
    """.split()
)
_ADDING_METHODS = frozenset({"update", "setdefault", "append"})
_DISPLAYS = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Starred, ast.IfExp, ast.keyword, ast.NamedExpr)
_COMPREHENSIONS = (ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp)


class Use(NamedTuple):
    """What other ranks than 0 do with a value, as a reason; whether one rank of every group does it."""

    reason: str
    of_groups: bool


def used_elsewhere(facts: ModuleFacts, value: ast.expr) -> Use | None:
    """What other ranks than 0 do with the value of an expression; None where they do nothing."""
    following = _Following()
    reason = following.used(facts, value, 0)
    return None if reason is None else Use(reason, following.of_groups)


class _Following:
    """One value on its way through names, containers, functions and those that call them."""

    def __init__(self) -> None:
        self.seen: set[ast.AST] = set()
        self.of_groups = False

    def used(self, facts: ModuleFacts, node: ast.expr, depth: int) -> str | None:
        if node in self.seen or runs_on_rank_0_only(facts, node):
            return None
        self.seen.add(node)
        if depth > _MOST_STEPS:
            return "the dict passes through too many functions to be followed"
        parent = facts.structure.parents[node]
        if isinstance(parent, (ast.Expr, ast.Delete)):
            return None
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            return self._assigned(facts, parent, depth)
        if isinstance(parent, ast.Return):
            return self._returned(facts, parent, depth)
        if isinstance(parent, _DISPLAYS):
            bound = self._bound(facts, parent.target, depth) if isinstance(parent, ast.NamedExpr) else None
            return bound or self._passed_on(facts, parent, depth)
        if isinstance(parent, ast.comprehension):
            return self._passed_on(facts, facts.structure.parents[parent], depth)
        if isinstance(parent, _COMPREHENSIONS):
            return self._passed_on(facts, parent, depth)
        if isinstance(parent, ast.Attribute):
            return self._attribute(facts, parent, depth)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return None if not isinstance(parent.ctx, ast.Load) else self.used(facts, parent, depth + 1)
        if isinstance(parent, ast.Call) and node is not parent.func:
            return self._argument(facts, parent, node, depth)
        if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
            return None
        return self._told(facts, node)

    def _passed_on(self, facts: ModuleFacts, node: ast.AST, depth: int) -> str | None:
        if isinstance(node, ast.keyword):
            call = facts.structure.parents[node]
            assert isinstance(call, ast.Call)
            return self._argument(facts, call, node.value, depth)
        assert isinstance(node, ast.expr)
        return self.used(facts, node, depth + 1)

    def _assigned(self, facts: ModuleFacts, statement: ast.Assign | ast.AnnAssign, depth: int) -> str | None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return next((told for one in targets if (told := self._bound(facts, one, depth))), None)

    def _bound(self, facts: ModuleFacts, target: ast.expr, depth: int) -> str | None:
        if isinstance(target, (ast.Tuple, ast.List)):
            return next((told for one in target.elts if (told := self._bound(facts, one, depth))), None)
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            return self._name(facts, target.value, depth)
        if isinstance(target, ast.Name):
            return self._name(facts, target, depth)
        if tested_in_part(facts, target) is not None:
            return self._told(facts, target)
        return f"`{ast.unparse(target)}` keeps the dict, and other code may read it there"

    def _name(self, facts: ModuleFacts, target: ast.Name, depth: int) -> str | None:
        """What is done with a name, or with a container of that name, behind where it gets the value."""
        scope = facts.scope(target)
        home = scope.lookup(target.id) or scope
        if home.is_module and not scope.is_module:
            return f"`{target.id}` is a global name, which other functions may read"
        if isinstance(target.ctx, ast.Store):
            reads = reads_of(facts, target)
            return next((told for use in reads if (told := self.used(facts, use, depth + 1))), None)
        loops = any(isinstance(one, (ast.For, ast.While, ast.AsyncFor)) for one in facts.blocks_around(target))
        for inner in home.nested():
            for use in inner.uses.get(target.id, ()):
                if use is target or inner.lookup(target.id) is not home:
                    continue
                if not loops and inner is scope and place_of(use) < place_of(target):
                    continue
                reason = self.used(facts, use, depth + 1)
                if reason is not None:
                    return reason
        return None

    def _returned(self, facts: ModuleFacts, statement: ast.Return, depth: int) -> str | None:
        function = facts.function(statement)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return "a lambda gives the dict to its callers"
        callers = calls_of(facts, function)
        if not callers:
            return f"`{function.name}` returns the dict, and its callers are not visible"
        for caller in callers:
            reason = self.used(caller.facts, caller.call, depth + 1)
            if reason is not None:
                where = "" if caller.facts is facts else f" in {caller.shown}"
                return f"`{function.name}` returns the dict{where}: {reason}"
        return None

    def _attribute(self, facts: ModuleFacts, node: ast.Attribute, depth: int) -> str | None:
        call = facts.structure.parents[node]
        if isinstance(call, ast.Call) and call.func is node:
            if node.attr in _PASSING_METHODS and not call.args:
                return self.used(facts, call, depth + 1)
            if node.attr in _ADDING_METHODS and isinstance(facts.structure.parents[call], ast.Expr):
                return None
        return self._told(facts, node)

    def _argument(self, facts: ModuleFacts, call: ast.Call, node: ast.expr, depth: int) -> str | None:
        if runs_on_rank_0_only(facts, call):
            return None
        if facts.names.qualified(call.func) in _PASSING_FUNCTIONS:
            return self.used(facts, call, depth + 1)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING_METHODS and call.args[:1] == [node]:
            owner = call.func.value
            return self._name(facts, owner, depth) if isinstance(owner, ast.Name) else self._told(facts, call)
        function = called(facts, call.func)
        parameter = None if function is None else parameter_of(function, call, node)
        if function is None or parameter is None:
            return self._told(facts, call)
        return self._parameter(function, parameter, depth)

    def _parameter(self, function: Function, parameter: ast.arg, depth: int) -> str | None:
        facts = function.facts
        if any(_last(one) in ("rank_zero_only", "on_main_process") for one in function.node.decorator_list):
            return None
        for scope in facts.structure.module.nested():
            if scope.node is not function.node:
                continue
            for inner in scope.nested():
                for use in inner.uses.get(parameter.arg, ()):
                    if inner.lookup(parameter.arg) is scope and self._is_parameter(facts, use, parameter):
                        reason = self.used(facts, use, depth + 1)
                        if reason is not None:
                            return reason
        return None

    def _is_parameter(self, facts: ModuleFacts, use: ast.Name, parameter: ast.arg) -> bool:
        return any(binding.node is parameter for binding in facts.names.bindings(use))

    def _told(self, facts: ModuleFacts, node: ast.AST) -> str:
        text = " ".join(ast.unparse(facts.statement(node) if not isinstance(node, ast.Call) else node).split())
        text = text if len(text) <= 50 else f"{text[:47]}..."
        line, part = getattr(node, "lineno", 0), tested_in_part(facts, node)
        if part is None:
            return f"line {line} (`{text}`) uses the dict on every rank"
        self.of_groups = part.of_groups
        every = "group" if part.of_groups else "machine"
        return f"line {line} uses the dict under `{part.text}`, which is true on one rank of every {every}"


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
