"""Whether code means FlatParameters themselves: it counts what a test finds, or uses it as only they can be used.

Under `use_orig_params=True` FSDP manages more parameters than there are FlatParameters, and none of them has a
FlatParameter's private attributes (torch 2.0 to 2.15, `_flat_param.py`). What a test selects is therefore followed
through names, collections and functions of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.scopes import Binding, Kind
from fsdp_migrate.facts.truth import COPIES, COUNTERS, Role, counts_ones, standing, where_held

# Attributes with an underscore that original parameters have too.
_COMMON = frozenset({"_fsdp_flattened"})
_ADDING = frozenset({"append", "add", "insert", "appendleft", "extend", "update"})
_ATTRIBUTE_FUNCTIONS = frozenset({"builtins.getattr", "builtins.hasattr", "builtins.setattr"})
_COLLECTIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_WRAPPERS = frozenset({*COPIES, "builtins.enumerate", "builtins.zip", "builtins.filter", "itertools.chain"})
_PICKERS = frozenset({"builtins.next", "builtins.min", "builtins.max"})
_PASSING = (ast.BoolOp, ast.IfExp, ast.NamedExpr, ast.Starred, ast.BinOp)

Function = ast.FunctionDef | ast.AsyncFunctionDef

COUNTED = (
    "FlatParameters are counted here, and under `use_orig_params=True` the count would be that of the original "
    "parameters: decide which number is meant"
)


class _Kind(Enum):
    TEST = "a truth value about the subject"
    ITEM = "one FlatParameter"
    MANY = "a collection of them"


class _Clue(NamedTuple):
    """A node to look at; `subject` is what a test is about, which tells that it is one unless `negated`."""

    kind: _Kind
    node: ast.expr
    subject: ast.expr | None = None
    negated: bool = False


@dataclass
class _Found(Exception):
    """The code means FlatParameters; `reason` is for the user."""

    reason: str = field(default="")


def special_use(facts: ModuleFacts, test: ast.expr, subject: ast.expr, negated: bool = False) -> str | None:
    """Why only a FlatParameter will do where `test` is true of `subject`, in words; None when anything else will.

    A `negated` test is true of everything else.
    """
    try:
        _Trail(facts).follow(_Clue(_Kind.TEST, test, subject, negated))
    except _Found as found:
        return found.reason
    return None


class _Trail:
    """Follows what a test finds wherever the file can be seen to take it."""

    def __init__(self, facts: ModuleFacts) -> None:
        self.facts = facts
        self.clues: list[_Clue] = []
        self.seen: set[tuple[_Kind, ast.expr]] = set()

    def follow(self, clue: _Clue) -> None:
        self.clues.append(clue)
        while self.clues:
            clue = self.clues.pop()
            if (clue.kind, clue.node) not in self.seen:
                self.seen.add((clue.kind, clue.node))
                _HANDLERS[clue.kind](self, clue)

    def add(
        self, kind: _Kind, nodes: Iterable[ast.expr], subject: ast.expr | None = None, negated: bool = False
    ) -> None:
        self.clues += [_Clue(kind, node, subject, negated) for node in nodes]

    def test(self, clue: _Clue) -> None:
        held = standing(self.facts, clue.node)
        if held.role is Role.COUNTED:
            raise _Found(COUNTED)
        if held.selection is not None and not clue.negated:
            self.add(_Kind.MANY, [held.selection])
        for region in where_held(self.facts, clue.node, not clue.negated):
            self._region(region, clue.subject, counts=held.role is not Role.ASSERTED)
        self._all_of_them(clue)
        statement = self.facts.structure.parents[clue.node]
        if held.role is Role.PASSED_ON and isinstance(statement, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            self.add(_Kind.TEST, self._uses_of_targets(statement), clue.subject, clue.negated)
        if held.role is Role.RETURNED and isinstance(clue.subject, ast.Name):
            self._callers_of_predicate(clue.subject, clue.negated)

    def _region(self, region: ast.AST, subject: ast.expr | None, counts: bool) -> None:
        """Look at code that runs for FlatParameters only; if it `counts`, every addition there is one for each."""
        for node in ast.walk(region):
            if counts and _adds_one(node):
                raise _Found(COUNTED)
            if counts and isinstance(node, ast.Call) and _is_method(node, _ADDING):
                self.add(_Kind.MANY, self._mentions(node.func.value))  # type: ignore[attr-defined]
            if isinstance(node, ast.expr) and subject is not None and _same(node, subject):
                self.add(_Kind.ITEM, [node])

    def _all_of_them(self, clue: _Clue) -> None:
        """Where `all(test(p) for p in ps)` holds, look at what `ps` is used for."""
        comprehension = self.facts.structure.parents[clue.node]
        if clue.negated or not isinstance(comprehension, (ast.GeneratorExp, ast.ListComp)):
            return
        call, everything = self.facts.structure.parents[comprehension], comprehension.generators[0].iter
        if not isinstance(call, ast.Call) or self._name(call) not in ("builtins.all", "builtins.any"):
            return
        for region in where_held(self.facts, call):
            same = (n for n in ast.walk(region) if isinstance(n, ast.expr) and _same(n, everything))
            self.add(_Kind.MANY, same if pure(everything) else ())

    def _callers_of_predicate(self, subject: ast.Name, negated: bool) -> None:
        """Follow the calls of the function that returns a test of its parameter `subject`."""
        bindings = self.facts.names.bindings(subject)
        if len(bindings) != 1 or bindings[0].kind is not Kind.PARAMETER:
            return
        function = bindings[0].scope.node
        for call in self._calls(function):
            argument = _argument(function, call, subject.id)
            if argument is not None:
                self.add(_Kind.TEST, [call], argument, negated)
        for mention in self._mentions_of(function):
            parent = self.facts.structure.parents[mention]
            if isinstance(parent, ast.Call) and mention in parent.args[:1] and not negated:
                self.add(_Kind.MANY, [parent] if self._name(parent) == "builtins.filter" else [])

    def item(self, clue: _Clue) -> None:
        node = clue.node
        parent = self.facts.structure.parents[node]
        if isinstance(parent, ast.Attribute) and _is_private(parent.attr):
            raise _Found(_used_as(parent))
        if isinstance(parent, ast.Call) and node in parent.args:
            self._item_argument(parent, node)
        elif isinstance(parent, (*_PASSING, ast.Tuple, ast.List, ast.Set)):
            self.add(_Kind.ITEM, [parent])
        elif isinstance(parent, (*_COLLECTIONS, ast.Dict)):
            self.add(_Kind.MANY, [parent])
        elif isinstance(parent, (ast.Return, ast.Yield)):
            kind = _Kind.ITEM if isinstance(parent, ast.Return) else _Kind.MANY
            self.add(kind, self._calls(self.facts.function(node)))
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            self.add(_Kind.ITEM, self._uses_of_targets(parent))
        if isinstance(parent, ast.Assign):
            containers = [target.value for target in parent.targets if isinstance(target, ast.Subscript)]
            self.add(_Kind.MANY, (use for container in containers for use in self._mentions(container)))

    def _item_argument(self, call: ast.Call, node: ast.expr) -> None:
        name = self._name(call)
        if name in _ATTRIBUTE_FUNCTIONS and node is call.args[0] and len(call.args) > 1:
            attribute = call.args[1]
            if isinstance(attribute, ast.Constant) and _is_private(str(attribute.value)):
                raise _Found(_used_as(call))
        elif name == "typing.cast":
            self.add(_Kind.ITEM, [call])
        elif _is_method(call, _ADDING):
            self.add(_Kind.MANY, self._mentions(call.func.value))  # type: ignore[attr-defined]
        else:
            self.add(_Kind.ITEM, self._parameter_uses(call, node))

    def many(self, clue: _Clue) -> None:
        node = clue.node
        parent = self.facts.structure.parents[node]
        if isinstance(parent, ast.comprehension) and node is parent.iter:
            whole = self.facts.structure.parents[parent]
            self.add(_Kind.ITEM, _loads(whole, _names(parent.target)))
        elif isinstance(parent, (ast.For, ast.AsyncFor)) and node is parent.iter:
            self.add(_Kind.ITEM, (use for part in parent.body for use in _loads(part, _names(parent.target))))
        elif isinstance(parent, ast.Call) and node in parent.args:
            self._many_argument(parent, node)
        elif isinstance(parent, ast.Attribute):
            self._many_method(parent)
        elif isinstance(parent, ast.Subscript) and node is parent.value:
            self.add(_Kind.MANY if isinstance(parent.slice, ast.Slice) else _Kind.ITEM, [parent])
        elif isinstance(parent, (*_PASSING, ast.List, ast.Tuple)):
            self.add(_Kind.MANY, [parent])
        elif isinstance(parent, (ast.Return, ast.YieldFrom)):
            self.add(_Kind.MANY, self._calls(self.facts.function(node)))
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
            self.add(_Kind.MANY, self._uses_of_targets(parent))

    def _many_argument(self, call: ast.Call, node: ast.expr) -> None:
        name = self._name(call)
        if name in COUNTERS or (name == "builtins.sum" and counts_ones(node)):
            raise _Found(COUNTED)
        if name in _WRAPPERS:
            self.add(_Kind.MANY, [call])
        elif name in _PICKERS:
            self.add(_Kind.ITEM, [call])
        elif _is_method(call, _ADDING):
            self.add(_Kind.MANY, self._mentions(call.func.value))  # type: ignore[attr-defined]
        else:
            self.add(_Kind.MANY, self._parameter_uses(call, node))

    def _many_method(self, attribute: ast.Attribute) -> None:
        call = self.facts.structure.parents[attribute]
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return
        if attribute.attr in ("items", "values", "copy"):
            self.add(_Kind.MANY, [call])
        elif attribute.attr in ("pop", "popleft", "get"):
            self.add(_Kind.ITEM, [call])

    def _name(self, call: ast.Call) -> str | None:
        return self.facts.names.qualified(call.func)

    def _uses_of_targets(self, statement: ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign) -> list[ast.expr]:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [use for target in targets for use in self._mentions(target)]

    def _mentions(self, place: ast.expr) -> Iterator[ast.expr]:
        """The places that read what the name or attribute at `place` holds."""
        if isinstance(place, ast.Attribute) and pure(place):
            wanted = ast.unparse(place)
            alike = (a for a in self.facts.structure.attributes if a.attr == place.attr and _is_load(a))
            yield from (a for a in alike if ast.unparse(a) == wanted)
        elif isinstance(place, ast.Name):
            home = self.facts.scope(place).lookup(place.id)
            yield from self._name_uses(home.bindings[place.id] if home is not None else [], place)
            if home is not None and home.is_class:
                yield from (a for a in self.facts.structure.attributes if a.attr == place.id and _is_load(a))

    def _name_uses(self, bindings: list[Binding], place: ast.Name) -> Iterator[ast.Name]:
        """The uses of a name that may see one of `bindings`; of that at `place` alone, if it is one of them."""
        own = [binding for binding in bindings if binding.node is place]
        wanted = own or bindings
        for scope in wanted[0].scope.module.nested() if wanted else ():
            for use in scope.uses.get(wanted[0].name, ()):
                if any(binding in wanted for binding in self.facts.names.bindings(use)):
                    yield use

    def _mentions_of(self, function: ast.AST) -> Iterator[ast.expr]:
        """The names and attributes that stand for a function of this file."""
        if not isinstance(function, Function):
            if isinstance(function, ast.Lambda):
                statement = self.facts.structure.parents[function]
                if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                    yield from self._uses_of_targets(statement)
            return
        if isinstance(self.facts.structure.parents[function], ast.ClassDef):
            yield from (a for a in self.facts.structure.attributes if a.attr == function.name and _is_load(a))
            return
        for scope in self.facts.structure.module.nested():
            for use in scope.uses.get(function.name, ()):
                if any(binding.node is function for binding in self.facts.names.bindings(use)):
                    yield use

    def _calls(self, function: ast.AST) -> Iterator[ast.Call]:
        for mention in self._mentions_of(function):
            call = self.facts.structure.parents[mention]
            if isinstance(call, ast.Call) and call.func is mention:
                yield call

    def _parameter_uses(self, call: ast.Call, node: ast.expr) -> Iterator[ast.Name]:
        """The uses of the parameter that takes the argument `node`, in functions of this file."""
        for function in self.facts.structure.functions:
            if function.name != getattr(call.func, "attr", getattr(call.func, "id", None)):
                continue
            for parameter in _parameters(function):
                if call in self._calls(function) and _argument(function, call, parameter) is node:
                    yield from (u for part in function.body for u in _loads(part, {parameter}))


_HANDLERS = {_Kind.TEST: _Trail.test, _Kind.ITEM: _Trail.item, _Kind.MANY: _Trail.many}


def _used_as(node: ast.expr) -> str:
    return (
        f"`{ast.unparse(node)}` needs a FlatParameter, which original parameters are not: take it from the module "
        "(`module._handle.flat_param`)"
    )


def _adds_one(node: ast.AST) -> bool:
    """Whether `node` is `n += 1` or `n = n + 1`."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _is_one(node.value)
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.BinOp):
        return False
    value = node.value
    same = ast.unparse(value.left) == ast.unparse(node.targets[0])
    return isinstance(value.op, ast.Add) and _is_one(value.right) and same


def _is_method(call: ast.Call, names: frozenset[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _is_private(attribute: str) -> bool:
    return attribute.startswith("_") and not attribute.startswith("__") and attribute not in _COMMON


def _is_load(node: ast.Attribute | ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _same(node: ast.expr, subject: ast.expr) -> bool:
    return type(node) is type(subject) and ast.dump(node) == ast.dump(subject)


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _loads(node: ast.AST, names: set[str]) -> Iterator[ast.Name]:
    """Where the names are read inside `node`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names and _is_load(inner):
            yield inner


def _parameters(function: ast.AST) -> list[str]:
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _argument(function: ast.AST, call: ast.Call, parameter: str) -> ast.expr | None:
    """What `call` passes for a parameter of `function`, None when that cannot be seen."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if positional[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
        positional = positional[1:]
    if parameter not in positional or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    position = positional.index(parameter)
    return call.args[position] if position < len(call.args) else None
