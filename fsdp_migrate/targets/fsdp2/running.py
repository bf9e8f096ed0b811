"""What has run when a place is reached: whether a model is wrapped, and whether it was evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import partial

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.project_code import Code, Function, Sort
from fsdp_migrate.facts.reaching import Order
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.facts.scopes import FunctionNode
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction

_DEEPEST = 5
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode", "set_grad_enabled")


def comes_first(code: Code, closure: Closure, construction: Construction, facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a model is built before a place is reached, as far as the calls in the project tell that pass it on."""
    ours = frozenset(one.node for one in (*closure.references, *closure.passed))
    levels: dict[ast.AST, list[ast.AST]] = {}
    for level, function in _upwards(code, [construction]):
        levels.setdefault(function, []).append(level)
    return _Behind(code, levels, ours).is_behind(facts, node)


class _Behind:
    """Whether places are reached behind one of the calls in `levels`; `ours` are the expressions for the model."""

    def __init__(self, code: Code, levels: dict[ast.AST, list[ast.AST]], ours: frozenset[ast.AST]) -> None:
        self.code = code
        self.levels = levels
        self.ours = ours
        self.known: dict[tuple[ast.AST, int], bool] = {}  # of functions: there may be many ways to each

    def is_behind(self, facts: ModuleFacts, node: ast.AST, steps: int = _DEEPEST) -> bool:
        function = facts.function(node)
        if function in self.levels:
            return any(_is_over(self.code, facts, one, node) for one in self.levels[function] if one is not node)
        if steps == 0 or not isinstance(function, FunctionNode):
            return False
        if (function, steps) not in self.known:
            self.known[function, steps] = self._in_all_calls(Function(facts, function), steps - 1)
        return self.known[function, steps]

    def _in_all_calls(self, function: Function, steps: int) -> bool:
        sites = self.code.callers(function).sites
        given = tuple(site for site in sites if not self.ours.isdisjoint(ast.walk(site.call))) or sites
        return bool(given) and all(self.is_behind(site.facts, site.call, steps) for site in given)


def _is_over(code: Code, facts: ModuleFacts, one: ast.AST, node: ast.AST) -> bool:
    """Whether a call is made before another is: above it, or among its arguments."""
    return one in ast.walk(node) or code.reaching(facts).order(one, node) is Order.BEFORE


def _upwards(code: Code, constructions: Iterable[Construction]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Constructions, the calls of their functions, and so on, each once with the function that it stands in."""
    level: dict[ast.AST, ModuleFacts] = {one.call: one.facts for one in constructions}
    seen: set[ast.AST] = set()
    for _ in range(_DEEPEST + 1):
        seen.update(level)
        above: dict[ast.AST, ModuleFacts] = {}
        for node, facts in level.items():
            function = facts.function(node)
            yield node, function
            if isinstance(function, FunctionNode):
                sites = code.callers(Function(facts, function)).sites
                above.update((site.call, site.facts) for site in sites if site.call not in seen)
        level = above


def follows_backward(code: Code, facts: ModuleFacts, node: ast.AST, steps: int = _DEEPEST) -> bool:
    """Whether gradients are computed above a place, in its function or in all that call it."""
    key = follows_backward, node, steps  # there may be many ways to a place
    return facts.memo(key, partial(_follows_backward, code, facts, node, steps))


def _follows_backward(code: Code, facts: ModuleFacts, node: ast.AST, steps: int) -> bool:
    function, reaching = facts.function(node), code.reaching(facts)
    for call in facts.structure.calls:
        is_above = facts.function(call) is function and place_of(call) < place_of(node)
        if is_above and _runs_backward(code, facts, call) and reaching.may_follow(call, node):
            return True
    if steps == 0 or not isinstance(function, FunctionNode):
        return False
    callers = code.callers(Function(facts, function))
    if callers.elsewhere or callers.hidden or not callers.sites:
        return False
    return all(follows_backward(code, site.facts, site.call, steps - 1) for site in callers.sites)


def _runs_backward(code: Code, facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call computes gradients, by its name or by the function of the project that it is of."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    functions = [one for one in code.origins(facts, call.func) if one.sort is Sort.FUNCTION]
    calls = [call, *(part for one in functions for part in one.facts.calls_in(one.node))]
    return any(getattr(one.func, "attr", getattr(one.func, "id", None)) == "backward" for one in calls)


class _State(Enum):
    """How some code leaves the root of a model."""

    GATHERED = "gathered"
    SHARDED = "sharded"


class Evaluations:
    """Where the models of a closure run without gradients, which leaves their roots gathered."""

    def __init__(self, code: Code, closure: Closure) -> None:
        self.code = code
        self.models = {one.node for one in closure.references}
        built = closure.constructions
        self.built = {one.call for one in built}
        self.building = {function for _, function in _upwards(code, built)}
        self.known: dict[tuple[ast.AST, bool], _State | None] = {}
        self.left: dict[tuple[ast.AST, bool], _State | None] = {}
        self.answers: dict[ast.AST, tuple[int, bool]] = {}

    def before(self, facts: ModuleFacts, node: ast.AST, steps: int = _DEEPEST) -> bool:
        """Whether a model may have run so, and nothing shards its root again until a place is reached."""
        asked, answer = self.answers.get(node, (-1, False))
        if answer or asked >= steps:
            return answer
        self.answers[node] = steps, False  # for what calls itself
        answer = self._before(facts, node, steps)
        self.answers[node] = steps, answer
        return answer

    def _before(self, facts: ModuleFacts, node: ast.AST, steps: int) -> bool:
        function = facts.function(node)
        while node is not function:
            parent = facts.structure.parents[node]
            block = _block(parent, node)
            found = self._left_by(facts, block[: block.index(node)] if block else (), free=False)
            if found is None and isinstance(parent, _LOOPS) and node in parent.body:
                again = self._left_by(facts, parent.body[parent.body.index(node) :], free=False)
                found = again if again is _State.GATHERED else None
            if found is not None:
                return found is _State.GATHERED
            node = parent
        if steps == 0 or not isinstance(function, FunctionNode) or function in self.building:
            return False
        sites = self.code.callers(Function(facts, function)).sites
        return any(self.before(site.facts, site.call, steps - 1) for site in sites)

    def _left_by(self, facts: ModuleFacts, statements: Sequence[ast.AST], *, free: bool) -> _State | None:
        """How statements leave the model, None if they do nothing with it; `free` of gradients if around them is so."""
        states = (self._left_by_one(facts, one, free=free) for one in reversed(statements))
        return next((state for state in states if state is not None), None)

    def _left_by_one(self, facts: ModuleFacts, node: ast.AST, *, free: bool) -> _State | None:
        if (node, free) not in self.left:
            self.left[node, free] = self._found_left_by(facts, node, free=free)
        return self.left[node, free]

    def _found_left_by(self, facts: ModuleFacts, node: ast.AST, *, free: bool) -> _State | None:
        if isinstance(node, (*FunctionNode, ast.ClassDef)):
            return None
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any("summon_full_params" in _names(one.context_expr) for one in node.items):
                return _State.SHARDED
            free = free or any(_is_free(one.context_expr) for one in node.items)
            return self._left_by(facts, node.body, free=free)
        parts = [getattr(node, name, ()) for name in ("body", "handlers", "orelse", "finalbody")]
        if isinstance(node, ast.stmt) and any(isinstance(part, list) and part for part in parts):
            states = {self._left_by(facts, part, free=free) for part in parts}
            return _State.GATHERED if _State.GATHERED in states else next((one for one in states if one), None)
        if isinstance(node, ast.ExceptHandler):
            return self._left_by(facts, node.body, free=free)
        made = (self._left_by_call(facts, one, free=free) for one in facts.calls_in(node))
        return next((state for state in made if state is not None), None)

    def _left_by_call(self, facts: ModuleFacts, call: ast.Call, *, free: bool) -> _State | None:
        if call in self.built:
            return _State.SHARDED
        if call.func in self.models:
            return _State.GATHERED if free else None
        if self.models.intersection(call.args) and _names(call.func).intersection(_STATES):
            return _State.SHARDED
        if isinstance(call.func, ast.Attribute):
            is_state = call.func.attr == "state_dict" and call.func.value in self.models
            if is_state or call.func.attr == "backward":
                return _State.SHARDED
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            return None
        functions = (one for one in self.code.origins(facts, call.func) if one.sort is Sort.FUNCTION)
        states = {self._left_by_function(one.facts, one.node, free=free) for one in functions}
        return _State.GATHERED if _State.GATHERED in states else next((one for one in states if one), None)

    def _left_by_function(self, facts: ModuleFacts, function: ast.AST, *, free: bool) -> _State | None:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if (function, free) not in self.known:
            self.known[function, free] = None  # for what calls itself
            inside = free or any(_is_free(one) for one in function.decorator_list)
            self.known[function, free] = self._left_by(facts, function.body, free=inside)
        return self.known[function, free]


_STATES = ("get_model_state_dict", "get_state_dict")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def _block(parent: ast.AST, child: ast.AST) -> list[ast.AST]:
    """The statements among which one stands."""
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and child in block:
            return block
    return []


def _is_free(node: ast.expr) -> bool:
    """Whether a context or a decorator turns gradients off, by its name."""
    return bool(_names(node).intersection(_WITHOUT_GRADIENTS))


def _names(node: ast.expr) -> set[str]:
    """The names in an expression, without what they belong to."""
    named = (one for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute)))
    return {one.id if isinstance(one, ast.Name) else one.attr for one in named}
