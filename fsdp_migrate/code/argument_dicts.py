"""Keyword arguments in dicts: in displays, `dict(...)` and merges, and set by later statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Kind, Scope
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.source import Span

_SETTING = ("update", "setdefault")
_QUOTES = "\"'"


class Given(NamedTuple):
    """One argument of a construction: its name, its value, and the place and holder of its name.

    `holder` is the call that takes it, or the display or `dict(...)` that is unpacked into one. `doubt` says what else
    may get it, None if only FSDP does.
    """

    name: str
    value: ast.expr
    place: Span
    holder: ast.AST
    call: ast.Call
    doubt: str | None = None

    def renamed(self, facts: ModuleFacts, name: str) -> Replace | None:
        """The edit that renames the argument, None if its name is not written plainly."""
        text = facts.source.segment(self.place)
        if text == self.name:
            return Replace(self.place, name)
        if text[:1] in _QUOTES and text[1:-1] == self.name and text[-1:] == text[:1]:
            return Replace(Span(self.place.start + 1, self.place.end - 1), name)
        return None


class Construction(NamedTuple):
    """A call that passes its keywords to the constructor; `doubt` is as in `Given`."""

    call: ast.Call
    doubt: str | None = None


def given_in(facts: ModuleFacts, holder: ast.expr, one: Construction, doubt: str | None = None) -> Iterator[Given]:
    """The arguments in a dict display or a call of `dict`, alone or merged with others."""
    doubt = one.doubt or doubt
    if isinstance(holder, ast.Dict):
        for key, value in zip(holder.keys, holder.values):
            if key is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield Given(key.value, value, facts.source.span(key), holder, one.call, doubt)
    elif isinstance(holder, ast.Call) and is_builtin_dict(facts, holder.func):
        yield from keywords(facts, holder, one, doubt)
    for part in merged(holder):
        yield from given_in(facts, part, one, doubt)


def merged(holder: ast.expr) -> Sequence[ast.expr]:
    """The dicts that `dict(one, **other)`, `{**one}`, `one | other` and a conditional expression combine."""
    if isinstance(holder, ast.Dict):
        return [value for key, value in zip(holder.keys, holder.values) if key is None]
    if isinstance(holder, ast.Call):
        return [*holder.args, *(keyword.value for keyword in holder.keywords if keyword.arg is None)]
    if isinstance(holder, ast.BinOp) and isinstance(holder.op, ast.BitOr):
        return [holder.left, holder.right]
    return [holder.body, holder.orelse] if isinstance(holder, ast.IfExp) else []


def keywords(facts: ModuleFacts, holder: ast.Call, one: Construction, doubt: str | None) -> Iterator[Given]:
    """The keyword arguments of a call."""
    for keyword in holder.keywords:
        if keyword.arg is not None:
            start = facts.source.span(keyword).start
            place = Span(start, start + len(keyword.arg.encode()))
            yield Given(keyword.arg, keyword.value, place, holder, one.call, one.doubt or doubt)


def is_builtin_dict(facts: ModuleFacts, func: ast.expr) -> bool:
    """Whether `func` is the class `dict`."""
    return isinstance(func, ast.Name) and facts.names.qualified(func) == "builtins.dict"


def bound_to(facts: ModuleFacts, home: Scope, name: str, one: Construction, doubt: str | None) -> Iterator[Given]:
    """The arguments in the dict of a name, as built and as set later; none if the name may hold something else."""
    bindings = home.bindings.get(name, [])
    parents = [facts.structure.parents.get(binding.node) for binding in bindings]
    unions = [one for one in parents if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.BitOr)]
    own = getattr(getattr(home.node, "args", None), "kwarg", None)  # a dict that no caller has
    if sum(b.kind is not Kind.ASSIGNMENT and b.node is not own for b in bindings) > len(unions):
        return
    for value in (*(binding.value for binding in bindings), *(union.value for union in unions)):
        if value is not None:
            yield from given_in(facts, value, one, doubt)
    for use in uses_in(home, name):
        yield from set_in(facts, use, one, doubt)


def dict_scope(facts: ModuleFacts, name: ast.Name) -> Scope | None:
    """The scope that binds a name, if it is the present one or the module."""
    scope = facts.scope(name)
    home = scope.lookup(name.id)
    return home if home is not None and (home is scope or home.is_module) else None


def uses_in(home: Scope, name: str) -> Iterator[ast.Name]:
    """The places that read a name of `home`, in that scope and those inside."""
    for inner in home.nested():
        if inner.lookup(name) is home:
            yield from inner.uses.get(name, ())


def set_in(facts: ModuleFacts, use: ast.expr, one: Construction, doubt: str | None) -> Iterator[Given]:
    """The arguments that a statement sets in a dict: by key, by `setdefault` or by `update`."""
    target = facts.structure.parents[use]
    update = update_of(facts, use)
    if update is not None and isinstance(update.func, ast.Attribute) and update.func.attr == "setdefault":
        key, *values = [*update.args, *update.args[:1]]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield Given(key.value, values[0], facts.source.span(key), update, one.call, one.doubt or doubt)
    elif update is not None:
        for value in update.args:
            yield from given_in(facts, value, one, doubt)
        yield from keywords(facts, update, one, doubt)
    if not isinstance(target, ast.Subscript) or target.value is not use or not isinstance(target.ctx, ast.Store):
        return
    assignment, key = facts.structure.parents[target], target.slice
    if isinstance(assignment, ast.Assign) and isinstance(key, ast.Constant) and isinstance(key.value, str):
        place = facts.source.span(key)
        yield Given(key.value, assignment.value, place, assignment, one.call, one.doubt or doubt)


def update_of(facts: ModuleFacts, use: ast.expr) -> ast.Call | None:
    """The statement `kwargs.update(...)` or `kwargs.setdefault(...)` with `use` as its dict."""
    method = facts.structure.parents[use]
    call = facts.structure.parents[method]
    if not isinstance(method, ast.Attribute) or method.attr not in _SETTING or not isinstance(call, ast.Call):
        return None
    return call if call.func is method and isinstance(facts.structure.parents[call], ast.Expr) else None
