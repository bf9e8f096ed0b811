"""Tests that are skipped on some torch releases, by decorators and marks of pytest, unittest and Lightning."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from fsdp_migrate.facts.releases import named_tests
from fsdp_migrate.facts.releases.reach import Reach

_MARKS = "pytestmark"
_MAX_DEPTH = 5
# Decorators of unittest that raise whoever calls the function.
_WRAPPING = frozenset({"skipIf", "skipUnless"})
# The releases that Lightning's `RunIf` lets a test run on; the upper bound is left out.
_BOUNDS = {"min_torch": ">=", "max_torch": "<"}
_REQUIRING = "require_"
_VERSION_ARGUMENTS = ("version", "min_version")


class Skips:
    """The releases on which the functions of one module are not skipped, as bits."""

    def __init__(self, gates: Reach) -> None:
        self.gates = gates
        self._marks: dict[ast.ClassDef | ast.Module, list[ast.expr]] = {}

    def reach(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """The releases on which the body of a function runs if it is called, or collected as a test."""
        is_test = function.name.startswith("test")
        # A mark is for those who collect tests: whoever calls the function does not ask for it.
        marks = [mark for mark in function.decorator_list if is_test or _name(mark) in _WRAPPING]
        outer = self.gates.parents.get(function)
        while outer is not None:
            if isinstance(outer, (ast.Module, ast.ClassDef)):
                marks += getattr(outer, "decorator_list", ())
                marks += self._marks_of(outer) if is_test else ()
            outer = self.gates.parents.get(outer)
        # What is skipped everywhere is no old arm.
        return self._let_by(marks) or self.gates.everywhere

    def _marks_of(self, holder: ast.ClassDef | ast.Module) -> list[ast.expr]:
        if holder not in self._marks:
            self._marks[holder] = list(_marks(holder.body))
        return self._marks[holder]

    def _let_by(self, marks: Iterable[ast.expr]) -> int:
        result = self.gates.everywhere
        for mark in marks:
            result &= self._mask(mark, 0)
        return result

    def _mask(self, mark: ast.expr, depth: int) -> int:
        """The releases that a decorator or mark does not skip."""
        if isinstance(mark, (ast.Name, ast.Attribute)) and depth < _MAX_DEPTH:
            return self._named(mark, depth + 1)
        if not isinstance(mark, ast.Call):
            return self.gates.everywhere
        name = _name(mark)
        if name in ("skipif", "skipIf", "skipUnless"):
            test = _condition(mark)
            if test is None or isinstance(test, ast.Constant):
                return self.gates.everywhere
            return self.gates.sides(test)[0 if name == "skipUnless" else 1]
        if name == "RunIf":
            return self._within(_bounds(mark))
        symbol = named_tests.function(name.removeprefix(_REQUIRING)) if name.startswith(_REQUIRING) else None
        return self.gates.everywhere if symbol is None else self._within(_required(mark, symbol))

    def _named(self, mark: ast.Name | ast.Attribute, depth: int) -> int:
        """As `_mask`, for a mark with a name, in this module or another one of the project."""
        definition = self.gates.names.definition(mark) if isinstance(mark, ast.Name) else None
        if definition is not None:
            return self.defined(definition, depth)
        project = self.gates.names.project
        qualified = None if project is None else self.gates.names.qualified(mark)
        home = None if project is None or qualified is None else project.home(qualified)
        bindings = [] if home is None else home[0].names.exported(home[1])
        if home is None or len(bindings) != 1:
            return self.gates.everywhere
        foreign = home[0].gates
        return self.gates.translated(foreign, foreign.skips.defined(bindings[0].value or bindings[0].node, depth))

    def defined(self, definition: ast.AST, depth: int) -> int:
        """As `_mask`, for the definition of a mark: a mark, or a decorator that ends with `return mark(function)`."""
        if isinstance(definition, ast.FunctionDef) and isinstance(definition.body[-1], ast.Return):
            value = definition.body[-1].value
            definition = value.func if isinstance(value, ast.Call) else definition
        return self._mask(definition, depth) if isinstance(definition, ast.Call) else self.gates.everywhere

    def _within(self, bounds: Iterable[tuple[str, str]]) -> int:
        result = self.gates.everywhere
        for symbol, text in bounds:
            try:
                wanted = Version(text)
            except InvalidVersion:
                continue
            let = (b for r, b in self.gates.bits.items() if named_tests.passes(symbol, r, wanted) is not False)
            result &= sum(let)
        return result


def _marks(body: Iterable[ast.stmt]) -> list[ast.expr]:
    """The marks that the body of a module or class gives all its tests."""
    found: list[ast.expr] = []
    for statement in body:
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        if value is not None and any(_is_marks(target) for target in targets):
            kept = found if isinstance(statement, ast.AugAssign) else []
            found = [*kept, *(value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value])]
    return found


def _name(mark: ast.expr) -> str:
    """The last name of a decorator or mark."""
    function = mark.func if isinstance(mark, ast.Call) else mark
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _is_marks(target: ast.expr | None) -> bool:
    return isinstance(target, ast.Name) and target.id == _MARKS


def _condition(mark: ast.Call) -> ast.expr | None:
    named = (keyword.value for keyword in mark.keywords if keyword.arg == "condition")
    return mark.args[0] if mark.args else next(named, None)


def _bounds(mark: ast.Call) -> Iterator[tuple[str, str]]:
    for keyword in mark.keywords:
        if keyword.arg in _BOUNDS and isinstance(keyword.value, ast.Constant):
            yield _BOUNDS[keyword.arg], str(keyword.value.value)


def _required(mark: ast.Call, symbol: str) -> Iterator[tuple[str, str]]:
    named = [keyword.value for keyword in mark.keywords if keyword.arg in _VERSION_ARGUMENTS]
    for value in (mark.args or named)[:1]:
        if isinstance(value, ast.Constant):
            yield symbol, str(value.value)
