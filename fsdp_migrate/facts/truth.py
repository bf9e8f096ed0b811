"""What a truth value is used for: it decides, is negated, asserted, counted or handed on; and where it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from fsdp_migrate.facts.calls import is_literal

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts

_BLOCKS = ("body", "orelse", "finalbody")
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
# Functions that give the elements of a collection on as they are.
COPIES = frozenset(f"builtins.{name}" for name in "list tuple set frozenset sorted iter reversed".split())
COUNTERS = frozenset({"builtins.len", "collections.Counter"})
_KEEPING = frozenset({"builtins.filter", "itertools.takewhile"})
_DROPPING = frozenset({"itertools.filterfalse", "itertools.dropwhile"})


class Role(Enum):
    """What becomes of a truth value.

    `DECIDES` covers conditions, `any`, `all` and filters; `RETURNED` the result of a function; `PASSED_ON` what is
    stored, printed or given to other code.
    """

    DECIDES = "decides"
    RETURNED = "returned"
    NEGATED = "negated"
    ASSERTED = "asserted"
    COMPARED = "compared"
    COUNTED = "counted"
    PASSED_ON = "passed on"


class Standing(NamedTuple):
    """The role of a truth value, and the collection of what it selects, where it is the condition of a filter."""

    role: Role
    selection: ast.expr | None = None


class _Shape(Enum):
    """What an expression on the way of a truth value holds."""

    TRUTH = "a truth value"
    TRUTHS = "several truth values"
    SELECTION = "what was selected by a truth value"
    SELECTED = "one of those"
    PREDICATE = "a function that returns a truth value"


class _Step(NamedTuple):
    """The value goes on to the parent in this shape; `decides` if it has decided something on the way."""

    shape: _Shape
    decides: bool = False


def standing(facts: ModuleFacts, test: ast.expr) -> Standing:
    """What the truth value of `test` is used for in its statement."""
    climb = _Climb(facts)
    role = climb.role(test)
    if role is not Role.COUNTED and _is_asserted(facts, test):
        role = Role.ASSERTED
    return Standing(role, climb.selection)


def where_held(facts: ModuleFacts, test: ast.expr, positive: bool = True) -> Iterator[ast.AST]:
    """The code that runs only after `test` was true (false: not `positive`).

    That is bodies, operands behind it, elements of comprehensions, the rest of a block.
    """
    parents = facts.structure.parents
    node: ast.AST = test
    while (parent := parents.get(node)) is not None:
        yield from _guarded(facts, parent, node, positive)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            positive = not positive
        elif isinstance(parent, ast.Compare):
            same = compared_with_constant(parent, node)
            if same is None:
                return
            positive = positive is same
        elif not (isinstance(parent, (ast.BoolOp, ast.NamedExpr)) or _is_bool(facts, parent)):
            return
        node = parent


def compared_with_constant(compare: ast.Compare, node: ast.AST) -> bool | None:
    """Whether `node is True` and the like are true when `node` is; None for other comparisons."""
    if len(compare.ops) != 1:
        return None
    other = compare.comparators[0] if node is compare.left else compare.left
    if not isinstance(other, ast.Constant) or not isinstance(other.value, bool):
        return None
    if isinstance(compare.ops[0], (ast.Is, ast.Eq)):
        return other.value
    return not other.value if isinstance(compare.ops[0], (ast.IsNot, ast.NotEq)) else None


def counts_ones(node: ast.expr) -> bool:
    """Whether `node` is a comprehension that gives a constant for each element."""
    return isinstance(node, _COMPREHENSIONS) and isinstance(node.elt, ast.Constant)


def _is_bool(facts: ModuleFacts, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and facts.names.qualified(node.func) == "builtins.bool"


def _is_asserted(facts: ModuleFacts, test: ast.expr) -> bool:
    """Whether `test` stands in an `assert` or in a call such as `self.assertTrue(...)` or `torch._assert(...)`."""
    node: ast.AST = test
    while not isinstance(node, ast.stmt):
        parent = facts.structure.parents[node]
        if isinstance(parent, ast.Call):
            name = getattr(parent.func, "attr", getattr(parent.func, "id", ""))
            if "assert" in name.lower() and node is not parent.func:
                return True
        if isinstance(parent, ast.Assert):
            return True
        node = parent
    return False


def _guarded(facts: ModuleFacts, parent: ast.AST, node: ast.AST, positive: bool) -> Iterator[ast.AST]:
    """The parts of `parent` and its surroundings that run only if its part `node` was true (false: not `positive`)."""
    if isinstance(parent, ast.BoolOp):
        if isinstance(parent.op, ast.And) is positive:
            yield from parent.values[parent.values.index(node) + 1 :]  # type: ignore[arg-type]
    elif isinstance(parent, ast.IfExp) and node is parent.test:
        yield parent.body if positive else parent.orelse
    elif isinstance(parent, ast.comprehension) and node in parent.ifs and positive:
        whole = facts.structure.parents[parent]
        yield from parent.ifs[parent.ifs.index(node) + 1 :]
        yield from whole.generators[whole.generators.index(parent) + 1 :]  # type: ignore[attr-defined]
        yield from _elements(whole)
    elif isinstance(parent, (ast.While, ast.match_case)) and positive:
        yield from parent.body
    elif isinstance(parent, ast.If) and node is parent.test:
        holds, fails = (parent.body, parent.orelse) if positive else (parent.orelse, parent.body)
        yield from holds
        if fails and isinstance(fails[-1], _LEAVING):
            yield from _following(facts, parent)
    elif isinstance(parent, ast.Assert) and positive:
        yield from _following(facts, parent)


def _elements(comprehension: ast.AST) -> list[ast.expr]:
    return [getattr(comprehension, name) for name in ("key", "value", "elt") if hasattr(comprehension, name)]


def _following(facts: ModuleFacts, statement: ast.stmt) -> list[ast.stmt]:
    """The statements behind `statement` in its block."""
    around = facts.structure.parents[statement]
    for name in _BLOCKS:
        block = getattr(around, name, None)
        if isinstance(block, list) and statement in block:
            return block[block.index(statement) + 1 :]
    return []


class _Climb:
    """Follows a truth value upwards through its statement."""

    def __init__(self, facts: ModuleFacts) -> None:
        self.facts = facts
        self.selection: ast.expr | None = None

    def role(self, test: ast.expr) -> Role:
        node: ast.AST = test
        shape, decided = _Shape.TRUTH, False
        while True:
            parent = self.facts.structure.parents[node]
            step = self._step(parent, node, shape)
            if isinstance(step, Role):
                return Role.DECIDES if decided and step in (Role.PASSED_ON, Role.RETURNED) else step
            node, shape, decided = parent, step.shape, decided or step.decides
            if shape is _Shape.SELECTION and self.selection is None and isinstance(node, ast.expr):
                self.selection = node

    def _step(self, parent: ast.AST, node: ast.AST, shape: _Shape) -> _Step | Role:
        if isinstance(parent, (ast.If, ast.While, ast.match_case)):
            return Role.DECIDES
        if isinstance(parent, ast.IfExp):
            return _chosen(parent, shape) if node is parent.test else _Step(shape)
        if isinstance(parent, ast.UnaryOp):
            return Role.NEGATED if isinstance(parent.op, ast.Not) else Role.PASSED_ON
        if isinstance(parent, ast.Compare):
            return self._compared(parent, node, shape)
        if isinstance(parent, (ast.BoolOp, ast.keyword)):
            return _Step(shape)
        if isinstance(parent, ast.Call):
            return self._call(parent, node, shape)
        if isinstance(parent, ast.Return):
            return Role.RETURNED if shape in (_Shape.TRUTH, _Shape.PREDICATE) else Role.PASSED_ON
        if isinstance(parent, ast.Assert):
            return Role.ASSERTED
        return self._contained(parent, node, shape)

    def _contained(self, parent: ast.AST, node: ast.AST, shape: _Shape) -> _Step | Role:
        if isinstance(parent, ast.comprehension):
            return _Step(_Shape.SELECTION, decides=True) if node in parent.ifs else Role.PASSED_ON
        if isinstance(parent, (*_COMPREHENSIONS, ast.DictComp)) and isinstance(node, ast.comprehension):
            return _Step(_Shape.SELECTION)
        if isinstance(parent, _COMPREHENSIONS) and shape is _Shape.TRUTH:
            return _Step(_Shape.TRUTHS)
        if isinstance(parent, ast.Lambda) and shape is _Shape.TRUTH:
            return _Step(_Shape.PREDICATE)
        if isinstance(parent, ast.NamedExpr) and shape is not _Shape.TRUTH:
            return _Step(shape)
        if isinstance(parent, (ast.BinOp, ast.AugAssign)) and shape is _Shape.TRUTH:
            return Role.COUNTED if isinstance(parent.op, ast.Add) else Role.PASSED_ON
        if isinstance(parent, ast.Attribute) and shape is _Shape.TRUTHS and parent.attr == "count":
            return Role.COUNTED
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and shape is _Shape.PREDICATE:
            return Role.RETURNED
        return Role.PASSED_ON

    def _compared(self, parent: ast.Compare, node: ast.AST, shape: _Shape) -> _Step | Role:
        if shape is _Shape.SELECTED and len(parent.ops) == 1 and is_literal(parent.comparators[0], None):
            return Role.NEGATED if isinstance(parent.ops[0], (ast.Is, ast.Eq)) else _Step(_Shape.TRUTH)
        same = compared_with_constant(parent, node) if shape is _Shape.TRUTH else None
        if same is None:
            return Role.COMPARED
        return _Step(shape) if same else Role.NEGATED

    def _call(self, parent: ast.Call, node: ast.AST, shape: _Shape) -> _Step | Role:
        name = self.facts.names.qualified(parent.func) if node is not parent.func else None
        if name is None:
            return Role.PASSED_ON
        if shape is _Shape.PREDICATE:
            return _applied(parent, node, name)
        if name in ("builtins.bool", "builtins.int"):
            return _Step(_Shape.TRUTH)
        if shape in (_Shape.TRUTHS, _Shape.SELECTION):
            return _collected(node, name, shape)
        return Role.PASSED_ON


def _chosen(choice: ast.IfExp, shape: _Shape) -> _Step | Role:
    """Where the condition of a conditional expression goes: `1 if test else 0` is the truth value itself."""
    values = {part.value for part in (choice.body, choice.orelse) if isinstance(part, ast.Constant)}
    return _Step(shape, decides=True) if shape is _Shape.TRUTH and values == {0, 1} else Role.DECIDES


def _applied(call: ast.Call, node: ast.AST, name: str) -> _Step | Role:
    """Where a predicate goes that is passed to the function `name`."""
    if not call.args or node is not call.args[0]:
        return Role.PASSED_ON
    if name in _KEEPING:
        return _Step(_Shape.SELECTION, decides=True)
    if name in _DROPPING:
        return Role.NEGATED
    return _Step(_Shape.TRUTHS) if name == "builtins.map" else Role.PASSED_ON


def _collected(node: ast.AST, name: str, shape: _Shape) -> _Step | Role:
    """Where truth values, or what they selected, go that are passed to the function `name`."""
    if name in ("builtins.any", "builtins.all"):
        return _Step(_Shape.TRUTH, decides=True)
    if name in COUNTERS and (shape is _Shape.SELECTION or name != "builtins.len"):
        return Role.COUNTED
    if name == "builtins.sum" and (shape is _Shape.TRUTHS or counts_ones(node)):  # type: ignore[arg-type]
        return Role.COUNTED
    if name in COPIES or (name in _KEEPING and shape is _Shape.SELECTION):
        return _Step(shape)
    if name == "builtins.next":
        return _Step(_Shape.TRUTH if shape is _Shape.TRUTHS else _Shape.SELECTED)
    return Role.PASSED_ON
