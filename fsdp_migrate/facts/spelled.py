"""Names that a module puts together at run time: `getattr(self, f"_save_{kind}")`, `globals()`, `dir(self)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdp_migrate.facts.scopes import Structure

_ANY = ".*"
# What stands for a value in the strings that `%` and `.format` fill.
_FIELD = re.compile(r"%(?:\(\w*\))?[-#0 +]*\d*\w|\{[^{}]*\}")
_LOOKUPS = frozenset({"getattr", "hasattr", "methodcaller", "attrgetter", "get", "pop", "getattr_static"})
# What is asked of a name that comes from a list of names.
_STARTS, _ENDS = frozenset({"startswith", "removeprefix"}), frozenset({"endswith", "removesuffix"})
_LISTINGS = frozenset({"dir", "getmembers", "getmembers_static", "globals"})
_RUNS_TEXT = frozenset({"eval", "exec"})
# No name is put together from more pieces.
_MOST_PIECES = 20


class Spelled:
    """The places of a module where a name may be put together, or that take all names there are."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure

    def places(self, name: str) -> Iterator[ast.AST]:
        """Where something may come to be the given name, or goes over names that it is one of."""
        yield from self._listings
        for node, pattern in self._patterns:
            if pattern.fullmatch(name):
                yield node

    @cached_property
    def _listings(self) -> list[ast.AST]:
        found: list[ast.AST] = []
        for call in self.structure.calls:
            if _called(call) in _LISTINGS and not self._is_asked_for_one(call):
                found.append(call)
            elif _called(call) == "vars" and all(_is_class(argument) for argument in call.args):
                found += [] if self._is_asked_for_one(call) else [call]
        for node in self.structure.attributes:
            if node.attr == "__dict__" and _is_class(node.value) and not self._is_asked_for_one(node):
                found.append(node)
        return found

    def _is_asked_for_one(self, node: ast.AST) -> bool:
        """Whether a dict of names is asked for one name only."""
        parent = self.structure.parents[node]
        looked_up = isinstance(parent, ast.Attribute) and parent.attr in _LOOKUPS
        return looked_up or isinstance(parent, (ast.Subscript, ast.Compare))

    @cached_property
    def _patterns(self) -> list[tuple[ast.AST, re.Pattern[str]]]:
        found: dict[ast.AST, str] = {}
        for constant in self.structure.strings:
            if isinstance(constant.value, str) and constant.value:
                whole = self._whole(constant)
                if whole is not None and whole not in found:
                    found[whole] = _pattern(whole, constant)
        return [
            (node, re.compile(pattern, re.DOTALL))
            for node, pattern in found.items()
            if pattern != _ANY and (not _is_loose(pattern) or self._is_looked_up(node))
        ]

    def _whole(self, constant: ast.Constant) -> ast.AST | None:
        """The expression that a string is a piece of, None for one that stands alone."""
        node: ast.AST = constant
        parent = self.structure.parents[node]
        for _ in range(_MOST_PIECES):
            if not isinstance(parent, (ast.JoinedStr, ast.BinOp)):
                break
            node, parent = parent, self.structure.parents[parent]
        if node is not constant:
            return None if isinstance(parent, (ast.JoinedStr, ast.BinOp)) else node
        if isinstance(parent, ast.Attribute) and parent.attr == "format":
            return self.structure.parents[parent]
        if not isinstance(parent, ast.Call) or constant not in parent.args:
            return None
        return parent if _called(parent) in {*_STARTS, *_ENDS, *_RUNS_TEXT} else None

    def _is_looked_up(self, node: ast.AST) -> bool:
        parent = self.structure.parents[node]
        return isinstance(parent, ast.Subscript) or (isinstance(parent, ast.Call) and _called(parent) in _LOOKUPS)


def _called(call: ast.Call) -> str | None:
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    return name if isinstance(name, str) else None


def _is_class(node: ast.expr) -> bool:
    """Whether this is a class or module by its looks, and no object that has values of its own."""
    if isinstance(node, ast.Name):
        return node.id == "cls" or node.id[:1].isupper()
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__"
    if isinstance(node, ast.Subscript):
        return getattr(node.value, "attr", None) == "modules"
    return isinstance(node, ast.Call) and _called(node) == "type"


def _is_loose(pattern: str) -> bool:
    return pattern.startswith(_ANY) and pattern.endswith(_ANY)


def _pattern(node: ast.AST, constant: ast.Constant) -> str:
    """A regular expression for what an expression around a string comes to."""
    if isinstance(node, ast.Call):
        name, text = _called(node), re.escape(str(constant.value))
        if name in _STARTS:
            return text + _ANY
        if name in _ENDS:
            return _ANY + text
        if name in _RUNS_TEXT:
            return "|".join(map(re.escape, re.findall(r"\w+", str(constant.value)))) or _ANY
        return _filled(str(constant.value))
    return re.sub(r"(?:\.\*)+", _ANY, _joined(node))


def _joined(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_joined, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined(node.left) + _joined(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return _filled(str(node.left.value))
    return _ANY


def _filled(text: str) -> str:
    """A pattern for a text with fields in it."""
    pieces = _FIELD.split(text)
    return _ANY.join(map(re.escape, pieces))
