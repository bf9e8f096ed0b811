"""Tests and loops that show that an object is an FSDP model: `isinstance`, `assert`, early exits, `match`.

Narrowing works as in type checkers. It holds on one side of a test, in what `and` and `or` evaluate after it, in
comprehensions after their conditions, and below an exit on the other side. It ends where the name, or an owner of the
attribute, is bound again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TypeGuard

from fsdp_migrate.facts.class_members import instance_of_class
from fsdp_migrate.facts.exits import leaves
from fsdp_migrate.facts.names import Names
from fsdp_migrate.facts.scopes import FunctionNode

_SAYING_NOTHING = (ast.Expr, ast.Import, ast.ImportFrom)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_COPIES = frozenset(f"builtins.{name}" for name in "list tuple set sorted reversed iter".split())
_SAME = (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)
_MODULES = "fsdp_modules"
_MOST_STEPS = 10
_MOST_CALLS = 2

_Place = tuple[int, int]
Checks = dict[ast.AST, list[ast.Assert | ast.If]]


class Narrowing:
    """What is known about the object of a name or dotted chain at its place."""

    def __init__(
        self,
        names: Names,
        is_model_class: Callable[[ast.expr], bool],
        is_model: Callable[[ast.expr], bool],
        checks: Checks,
        is_other_class: Callable[[ast.expr], bool] = lambda _cls: False,
        is_base: Callable[[ast.expr], bool] = lambda _cls: False,
    ) -> None:
        """`is_model_class` knows FSDP and its subclasses, `is_model` objects that are FSDP models; `checks` is a cache.

        `is_other_class` knows classes that no FSDP model has, `is_base` some that every one has.
        """
        self.is_base = is_base
        self.is_other_class = is_other_class
        self._checks = checks
        self.names = names
        self.structure = names.structure
        self.is_model_class = is_model_class
        self.is_model = is_model

    def yields_models(self, node: ast.expr, steps: int = _MOST_STEPS) -> bool:
        """Whether all elements of a collection are FSDP models: those of `fsdp_modules`, or selected by a test."""
        if steps == 0:
            return False
        if isinstance(node, ast.Name):
            value = self.names.value(node)
            return value is not None and self.yields_models(value, steps - 1)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return isinstance(node.elt, ast.Name) and self.is_model(node.elt)
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Slice) and self.yields_models(node.value, steps - 1)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr == _MODULES:
            return self.is_model_class(node.func.value) or self.is_model(node.func.value)
        copied = bool(node.args) and self.names.qualified(node.func) in _COPIES
        return copied and self.yields_models(node.args[0], steps - 1)

    def checks(self, parent: ast.AST, child: ast.AST) -> list[ast.Assert | ast.If]:
        """The assertions, and the `if` statements with an exit, in the block of `parent` that contains `child`."""
        if isinstance(child, ast.stmt) and child not in self._checks:
            for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(block, list):
                    found = [one for one in block if isinstance(one, ast.Assert) or _has_exit(one)]
                    self._checks.update(dict.fromkeys(block, found))
        return self._checks.get(child, [])

    def narrows(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether the code around or above `node` shows that it is an FSDP model."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and _Walk(self, node, root).holds()

    def excludes(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether the code around or above `node` shows that it is not an FSDP model."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and _Walk(self, node, root, wanted=False).holds()


class _Walk:
    """A walk from one node outwards, to the scope of its name."""

    def __init__(
        self, narrowing: Narrowing, node: ast.Name | ast.Attribute, root: ast.Name, *, wanted: bool = True
    ) -> None:
        """If `wanted`, ask whether it is a model, otherwise whether it certainly is not."""
        self.wanted = wanted
        self.narrowing = narrowing
        self.structure = narrowing.structure
        self.node = node
        self.home = self.structure.scope(root).lookup(root.id)
        self.root = root
        self.text = ast.unparse(node)
        self.loops: list[ast.AST] = []  # those that the walk has left

    def holds(self) -> bool:
        """Whether a test or loop on the way shows the answer, and nothing binds the name again."""
        stores = self._stores()
        child: ast.AST = self.node
        while (parent := self.structure.parents.get(child)) is not None:
            if any(self._is_kept(place, stores) for place in self._known(parent, child)):
                return True
            if isinstance(parent, (*FunctionNode, ast.ClassDef)) or (self.home and parent is self.home.node):
                return False
            if isinstance(parent, _LOOPS) and child is not getattr(parent, "iter", None):
                self.loops.append(parent)
            child = parent
        return False

    def _stores(self) -> list[_Place]:
        """The places that bind the name, or an attribute of the chain."""
        names = [] if self.home is None else [binding.position for binding in self.home.bindings[self.root.id]]
        parts = self.text.split(".")
        stores = [one for one in self.structure.stores if one.attr in parts]
        return names + [_start(one) for one in stores if f"{self.text}.".startswith(f"{ast.unparse(one)}.")]

    def _is_kept(self, known: _Place, stores: list[_Place]) -> bool:
        """Whether nothing has bound the name again since `known`."""
        use = _start(self.node)
        return not any(
            known <= store < use or any(_start(loop) <= store < _end(loop) for loop in self.loops) for store in stores
        )

    def _known(self, parent: ast.AST, child: ast.AST) -> Iterator[_Place]:
        """The places from which `parent` shows its part `child` that the object is an FSDP model."""
        if isinstance(parent, (ast.If, ast.While, ast.IfExp)) and child is not parent.test:
            positive = child is parent.body or (isinstance(parent.body, list) and child in parent.body)
            yield from self._tested(parent.test, positive)
        elif isinstance(parent, ast.BoolOp):
            for value in parent.values[: parent.values.index(child)]:  # type: ignore[arg-type]
                yield from self._tested(value, isinstance(parent.op, ast.And))
        elif isinstance(parent, (ast.For, ast.AsyncFor)) and child in parent.body:
            yield from self._looped(parent)
        elif isinstance(parent, _COMPREHENSIONS):
            generators = parent.generators
            behind = generators[: generators.index(child)] if isinstance(child, ast.comprehension) else generators
            binding = [g for g in behind if self.root.id in {getattr(part, "id", None) for part in ast.walk(g.target)}]
            for generator in behind[behind.index(binding[-1]) if binding else 0 :]:
                yield from self._generated(generator, len(generator.ifs))
        elif isinstance(parent, ast.comprehension) and child in parent.ifs:
            yield from self._generated(parent, parent.ifs.index(child))
        elif isinstance(parent, ast.match_case) and child is not parent.pattern:
            yield from self._matched(parent, child)
        for statement in self.narrowing.checks(parent, child):
            if _end(statement) <= _start(child):
                yield from self._passed(statement)

    def _generated(self, generator: ast.comprehension, conditions: int) -> Iterator[_Place]:
        yield from self._looped(generator)
        for condition in generator.ifs[:conditions]:
            yield from self._tested(condition, True)

    def _looped(self, loop: ast.For | ast.AsyncFor | ast.comprehension) -> Iterator[_Place]:
        """A loop over FSDP models, numbered or not."""
        target, collection = loop.target, loop.iter
        if not self.wanted:
            return
        if isinstance(target, ast.Tuple) and isinstance(collection, ast.Call) and collection.args:
            if self.narrowing.names.qualified(collection.func) != "builtins.enumerate":
                return
            target, collection = target.elts[-1], collection.args[0]
        if ast.unparse(target) == self.text and self.narrowing.yields_models(collection):
            yield _end(loop.iter)

    def _matched(self, case: ast.match_case, child: ast.AST) -> Iterator[_Place]:
        pattern, subject = case.pattern, self.structure.parents[case].subject  # type: ignore[attr-defined]
        names = {ast.unparse(subject)}
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
            names.add(pattern.name or "")
            pattern = pattern.pattern
        is_model = isinstance(pattern, ast.MatchClass) and self._are_meant(pattern.cls, True)
        if is_model and self.text in names:
            yield _end(case.pattern)
        if case.guard is not None and child is not case.guard:
            yield from self._tested(case.guard, True)

    def _passed(self, statement: ast.Assert | ast.If) -> Iterator[_Place]:
        """An assertion, or an exit for everything else, that control has passed."""
        blocks = [(statement.body, False), (statement.orelse, True)] if isinstance(statement, ast.If) else []
        outcomes = [outcome for block, outcome in blocks if leaves(block)] if blocks else [True]
        if any(self._implies(statement.test, outcome, self.text) for outcome in outcomes):
            yield _end(statement)

    def _tested(self, test: ast.expr, outcome: bool) -> Iterator[_Place]:
        if self._implies(test, outcome, self.text):
            yield _end(test)

    def _implies(self, test: ast.expr, outcome: bool, text: str, steps: int = _MOST_CALLS) -> bool:
        """Whether the object `text` is an FSDP model if `test` has the value `outcome`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._implies(test.operand, not outcome, text, steps)
        if isinstance(test, ast.BoolOp):
            parts = [self._implies(value, outcome, text, steps) for value in test.values]
            return any(parts) if isinstance(test.op, ast.And) is outcome else all(parts)
        if isinstance(test, ast.Call):
            if self.narrowing.names.qualified(test.func) != "builtins.isinstance" or len(test.args) != 2:
                return self._is_answered(test, outcome, text, steps)
            return _is_object(test.args[0], text) and self._are_meant(test.args[1], outcome)
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return False
        subject = instance_of_class(test.left)
        same = isinstance(test.ops[0], (ast.Is, ast.Eq)) if outcome else isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
        if subject is None or not _is_object(subject, text) or not isinstance(test.ops[0], _SAME):
            return False
        return self._are_meant(test.comparators[0], same)

    def _is_answered(self, call: ast.Call, outcome: bool, text: str, steps: int) -> bool:
        """The same for a function of this file that only returns the test of its parameter."""
        function = self.narrowing.names.definition(call.func) if isinstance(call.func, ast.Name) else None
        if steps == 0 or not isinstance(function, ast.FunctionDef) or not function.args.args:
            return False
        *before, answer = function.body
        if not all(isinstance(one, _SAYING_NOTHING) for one in before) or not isinstance(answer, ast.Return):
            return False
        is_asked = len(call.args) == 1 and not call.keywords and _is_object(call.args[0], text)
        parameter = function.args.args[0].arg
        return is_asked and answer.value is not None and self._implies(answer.value, outcome, parameter, steps - 1)

    def _are_meant(self, classes: ast.expr, outcome: bool) -> bool:
        """Whether an object is of one of these classes, or is not, says what is wanted to be known."""
        listed = classes.elts if isinstance(classes, ast.Tuple) else [classes]
        if self.wanted:
            return outcome and bool(listed) and all(map(self.narrowing.is_model_class, listed))
        if outcome:
            return bool(listed) and all(map(self.narrowing.is_other_class, listed))
        return any(self.narrowing.is_model_class(cls) or self.narrowing.is_base(cls) for cls in listed)


def _is_object(node: ast.expr, text: str) -> bool:
    return ast.unparse(node.target if isinstance(node, ast.NamedExpr) else node) == text


def _has_exit(statement: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(statement, ast.If) and (leaves(statement.body) or leaves(statement.orelse))


def _start(node: ast.AST) -> _Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> _Place:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
