"""Deprecations: by decorator, and by warnings in what runs when the thing is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tools.wheel_api.modules import Binding
from tools.wheel_api.names import dotted, text_of
from tools.wheel_api.release import Release
from tools.wheel_api.signatures import Function

Deprecation = tuple[str, str]
_MAX_DEPTH = 3
CATEGORIES = ("FutureWarning", "DeprecationWarning", "PendingDeprecationWarning")


@dataclass
class Deprecated:
    """What a function's body or decorators deprecate: itself, some parameters, members of enumerations."""

    itself: Deprecation | None = None
    parameters: dict[str, Deprecation] = field(default_factory=dict)
    members: dict[str, Deprecation] = field(default_factory=dict)


def decorated(node: Function | ast.ClassDef) -> Deprecation | None:
    """Category and text of `@deprecated`."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and _last(decorator.func).lstrip("_") == "deprecated":
            text = text_of(decorator.args[0]) if decorator.args else None
            given = [keyword.value for keyword in decorator.keywords if keyword.arg == "category"] or decorator.args[
                1:2
            ]
            return (_category(given[0]) if given else "DeprecationWarning"), _tidy(text or "")
    return None


def warned(call: ast.Call, values: Mapping[str, str] | None = None) -> Deprecation | None:
    """Category and text of a `warnings.warn` call, None when it is not about a deprecation."""
    given = [k.value for k in call.keywords if k.arg == "category"] or call.args[1:2]
    category = _category(given[0]) if given else "UserWarning"
    message = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "message"), None)
    text = _tidy(text_of(message, dict(values or {})) or "")
    return (category, text) if category in CATEGORIES or "deprecat" in text.lower() else None


def in_function(release: Release, held: Binding, cls: str | None) -> Deprecated:
    """What the function deprecates; `cls` is the class it belongs to."""
    assert isinstance(held.node, Function)
    found = Deprecated(decorated(held.node))
    _Walk(release, held, cls, found).statements(held.node.body)
    return found


class _Walk:
    """Follows a function's statements, and those of what it calls on its own class or only to warn."""

    def __init__(self, release: Release, held: Binding, cls: str | None, found: Deprecated) -> None:
        assert isinstance(held.node, Function)
        self.release = release
        self.held = held
        self.cls = cls
        self.found = found
        self.parameters = {name: name for name in _parameter_names(held.node)}
        self.values: dict[str, str] = {}
        self.depth = 0
        self.always = True

    def statements(self, body: list[ast.stmt], tests: tuple[ast.expr, ...] = ()) -> None:
        for statement in body:
            if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and isinstance(statement.value, ast.Call):
                self.call(statement.value, tests)
            elif isinstance(statement, ast.If):
                inner = tests if _is_about_compiling(statement.test) else (*tests, statement.test)
                self.statements(statement.body, inner)
                self.statements(statement.orelse, (*tests, ast.Constant(...)))
            elif isinstance(statement, (ast.With, ast.Try)):
                self.statements(statement.body, tests)
            elif isinstance(statement, (ast.For, ast.While)):
                self.statements(statement.body, (*tests, ast.Constant(...)))

    def call(self, call: ast.Call, tests: tuple[ast.expr, ...]) -> None:
        called = dotted(call.func) or ""
        if called in ("warnings.warn", "warn"):
            deprecation = warned(call, self.values)
            if deprecation is not None:
                self.record(deprecation, tests)
        elif self.depth < _MAX_DEPTH:
            own = self.cls is not None and called.partition(".")[0] in ("self", "cls", self.cls.rpartition(".")[2])
            if (own and not tests) or any(word in called for word in ("warn", "deprecat")):
                self.enter(call, called, self.always and not tests)

    def enter(self, call: ast.Call, called: str, always: bool) -> None:
        """Go on in what is called as if its body stood here."""
        root, _, rest = called.partition(".")
        owner = self.cls if self.cls is not None and root in ("self", "cls") else f"{self.held.module}.{root}"
        held = self.release.resolve(f"{owner}.{rest}" if rest else owner)[1]
        if held is None or not isinstance(held.node, Function):
            return
        inner = _Walk(self.release, held, self.cls, self.found)
        inner.depth, inner.always = self.depth + 1, always
        given = dict(zip(_parameter_names(held.node), call.args))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        named = {name: dotted(value) or "" for name, value in given.items()}
        inner.parameters = {name: self.parameters[own] for name, own in named.items() if own in self.parameters}
        inner.values = {n: text for n, value in given.items() if (text := text_of(value)) is not None}
        inner.statements(held.node.body)

    def record(self, deprecation: Deprecation, tests: tuple[ast.expr, ...]) -> None:
        members = [m for test in tests for m in self.members(test)]
        named = [p for test in tests for p in self.mentioned(test) if re.search(rf"\b{p}\b", deprecation[1])]
        if members:
            self.found.members.update(dict.fromkeys(members, deprecation))
        elif named:
            for name in named:
                self.found.parameters.setdefault(name, deprecation)
        elif self.always and not tests and self.found.itself is None:
            self.found.itself = deprecation

    def members(self, test: ast.expr) -> Iterator[str]:
        """Enumeration members that the test compares something with."""
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Eq, ast.Is)):
            name, held = self.release.resolve(f"{self.held.module}.{dotted(test.comparators[0])}")
            if held is not None and held.kind == "constant" and name.rpartition(".")[2].isupper():
                yield name

    def mentioned(self, test: ast.expr) -> Iterator[str]:
        for node in ast.walk(test):
            if isinstance(node, ast.Name) and node.id in self.parameters:
                yield self.parameters[node.id]


def _parameter_names(function: Function) -> list[str]:
    args = function.args
    return [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs) if arg.arg not in ("self", "cls")]


def _is_about_compiling(test: ast.expr) -> bool:
    """Whether the test only keeps warnings out of compiled code: `if not is_compiling():`."""
    called = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    return isinstance(called, ast.Call) and "compiling" in _last(called.func)


def _last(node: ast.expr) -> str:
    return (dotted(node) or "").rpartition(".")[2]


def _category(node: ast.expr) -> str:
    return "" if isinstance(node, ast.Constant) else _last(node)


def _tidy(text: str) -> str:
    return " ".join(text.split())
