"""What has run when a place is reached: whether a model is wrapped, and whether it was evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.project_code import Code, Function, Sort, own_nodes
from fsdp_migrate.facts.reaching import Order
from fsdp_migrate.facts.scopes import FunctionNode
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction

_DEEPEST = 5
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode", "set_grad_enabled")


def comes_first(code: Code, construction: Construction, facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a model is built before a place is reached, as far as the calls in the project tell."""
    levels: dict[ast.AST, list[ast.AST]] = {}
    for level, function in _upwards(code, construction.facts, construction.call, _DEEPEST):
        levels.setdefault(function, []).append(level)
    return _is_behind(code, levels, facts, node, _DEEPEST)


def _is_behind(code: Code, levels: dict[ast.AST, list[ast.AST]], facts: ModuleFacts, node: ast.AST, steps: int) -> bool:
    function = facts.function(node)
    if function in levels:
        return any(_is_over(code, facts, one, node) for one in levels[function] if one is not node)
    if steps == 0 or not isinstance(function, FunctionNode):
        return False
    sites = code.callers(Function(facts, function)).sites
    return bool(sites) and all(_is_behind(code, levels, site.facts, site.call, steps - 1) for site in sites)


def _is_over(code: Code, facts: ModuleFacts, one: ast.AST, node: ast.AST) -> bool:
    """Whether a call is made before another is: above it, or among its arguments."""
    return one in ast.walk(node) or code.reaching(facts).order(one, node) is Order.BEFORE


def _upwards(code: Code, facts: ModuleFacts, node: ast.AST, steps: int) -> Iterator[tuple[ast.AST, ast.AST]]:
    """A node, the calls of its function, and so on, each with the function that it stands in."""
    function = facts.function(node)
    yield node, function
    if steps and isinstance(function, FunctionNode):
        for site in code.callers(Function(facts, function)).sites:
            yield from _upwards(code, site.facts, site.call, steps - 1)


def ran_to_evaluate(code: Code, closure: Closure, facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a model may have run without gradients, and not with them since, when a place is reached."""
    return _Evaluated(code, closure).before(facts, node, _DEEPEST)


class _Evaluated:
    def __init__(self, code: Code, closure: Closure) -> None:
        self.code = code
        self.models = {one.node for one in closure.references}
        self.built = {one.call for one in closure.constructions}

    def before(self, facts: ModuleFacts, node: ast.AST, steps: int) -> bool:
        function = facts.function(node)
        body = own_nodes(function) if isinstance(function, (*FunctionNode, ast.Module)) else ()
        calls = [one for one in body if isinstance(one, ast.Call)]
        reaching = self.code.reaching(facts)
        earlier = [one for one in calls if reaching.may_follow(one, node)]
        if any(self._runs(facts, one, facts.function(one), free=False, steps=_DEEPEST) for one in earlier):
            return True
        if steps == 0 or not isinstance(function, FunctionNode) or self.built.intersection(calls):
            return False
        sites = self.code.callers(Function(facts, function)).sites
        return any(self.before(site.facts, site.call, steps - 1) for site in sites)

    def _runs(self, facts: ModuleFacts, call: ast.Call, function: ast.AST, *, free: bool, steps: int) -> bool:
        """Whether a call runs the model without gradients; `free` says that it is made without."""
        free = free or _is_free(facts, call)
        if call.func in self.models:
            return free
        if steps == 0 or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return False
        for one in self.code.origins(facts, call.func):
            if one.sort is Sort.FUNCTION and one.node is not function and isinstance(one.node, FunctionNode):
                inside = [node for node in own_nodes(one.node) if isinstance(node, ast.Call)]
                if any(self._runs(one.facts, node, one.node, free=free, steps=steps - 1) for node in inside):
                    return True
        return False


def _is_free(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether no gradients are recorded at a node, by what is written around it."""
    while node in facts.structure.parents:
        node = facts.structure.parents[node]
        given: list[ast.expr] = []
        if isinstance(node, (ast.With, ast.AsyncWith)):
            given = [one.context_expr for one in node.items]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.decorator_list
        if any(_names(one).intersection(_WITHOUT_GRADIENTS) for one in given):
            return True
        if isinstance(node, FunctionNode):
            return False
    return False


def _names(node: ast.expr) -> set[str]:
    """The names in an expression, without what they belong to."""
    named = (one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute)))
    return {one.id if isinstance(one, ast.Name) else one.attr for one in named}
