"""Where a file hands keyword arguments to the constructor of FSDP: in a call, a partial, or a dict on its way there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdp_migrate.edits import Replace
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.held import is_super
from fsdp_migrate.facts.names import PACKAGE
from fsdp_migrate.facts.scopes import Kind, Scope
from fsdp_migrate.source import Span

PARTIAL = "functools.partial"
_WRAPS = (f"{PACKAGE}.wrap.enable_wrap", f"{PACKAGE}.wrap.wrap")
_SETTING = ("update", "setdefault")
_QUOTES = "\"'"


@dataclass(frozen=True)
class Given:
    """One argument of a construction: its name, the value, where the name is written and what holds it.

    `holder` is the call that takes it, or the display or `dict(...)` that is unpacked into one. `doubt` says why it may
    go somewhere else too, None when it goes to FSDP only.
    """

    name: str
    value: ast.expr
    place: Span
    holder: ast.AST
    call: ast.Call
    doubt: str | None = None

    def renamed(self, facts: ModuleFacts, name: str) -> Replace | None:
        """The edit that gives the argument another name, None where the name is not written plainly."""
        text = facts.source.segment(self.place)
        if text == self.name:
            return Replace(self.place, name)
        if text[:1] in _QUOTES and text[1:-1] == self.name and text[-1:] == text[:1]:
            return Replace(Span(self.place.start + 1, self.place.end - 1), name)
        return None


@dataclass(frozen=True)
class _Construction:
    """A call that passes its keywords on to the constructor."""

    call: ast.Call
    doubt: str | None


def given(facts: ModuleFacts) -> tuple[Given, ...]:
    """Every argument that reaches the constructor under its name."""
    return facts.memo(given, lambda: tuple(_given(facts)))


def constructions(facts: ModuleFacts) -> tuple[ast.Call, ...]:
    """The calls of the constructor itself; of its subclasses only while none has a constructor of its own."""
    return tuple(one.call for one in _constructions(facts) if constructs(facts, one.call.func) and one.doubt is None)


def constructs(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether `node` may be FSDP, or a subclass that has its constructor."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    symbols = facts.names.symbols(node)
    return any(symbol is not None and _is_fsdp(facts, symbol) for symbol in symbols)


def _is_fsdp(facts: ModuleFacts, symbol: str) -> bool:
    if symbol == FSDP:
        return True
    return facts.fsdp.is_subclass(symbol) and facts.fsdp.overriding("__init__") is None


def _constructions(facts: ModuleFacts) -> tuple[_Construction, ...]:
    return facts.memo(_constructions, lambda: tuple(_found(facts)))


def _found(facts: ModuleFacts) -> Iterator[_Construction]:
    for call in facts.structure.calls if _may_construct(facts.written) else ():
        cls = _constructed(facts, call)
        if cls is not None:
            symbols = facts.names.symbols(cls) if cls is not call else {FSDP}
            other = any(symbol is None or not _is_fsdp(facts, symbol) for symbol in symbols)
            yield _Construction(call, f"`{ast.unparse(cls)}` may also be another class here" if other else None)


def _may_construct(written: bytes) -> bool:
    """Whether a text names the class or may name one of the functions that wrap modules into it."""
    return b"FullyShardedDataParallel" in written or (b"fsdp" in written and b"wrap" in written)


def _constructed(facts: ModuleFacts, call: ast.Call) -> ast.expr | None:
    """The expression for FSDP that `call` builds, or the call itself where its class is given elsewhere."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return None
    if constructs(facts, call.func):
        return call.func
    if _is_inherited_constructor(facts, call.func):
        return call
    qualified = facts.names.qualified(call.func)
    bound = facts.names.value(call.func) if isinstance(call.func, ast.Name) else None
    for partial in (one for one in (call, bound) if isinstance(one, ast.Call) and one.args):
        if _qualified(facts, partial.func) == PARTIAL and constructs(facts, partial.args[0]):
            return partial.args[0]
    if qualified not in _WRAPS:
        return None
    cls = next(
        (keyword.value for keyword in call.keywords if keyword.arg == "wrapper_cls"), _unpacked_class(facts, call)
    )
    if cls is None:
        return call if qualified == _WRAPS[1] else None
    return cls if constructs(facts, cls) else None


def _qualified(facts: ModuleFacts, node: ast.expr) -> str | None:
    return facts.names.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _unpacked_class(facts: ModuleFacts, call: ast.Call) -> ast.expr | None:
    """The class that a wrapping call is given in a dict."""
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg is None and isinstance(value, ast.Name):
            value = facts.names.value(value) or value
        if keyword.arg is None:
            held = (one for one in _held(facts, value, _Construction(call, None)) if one.name == "wrapper_cls")
            if (found := next(held, None)) is not None:
                return found.value
    return None


def _is_inherited_constructor(facts: ModuleFacts, func: ast.expr) -> bool:
    """Whether `func` is `FSDP.__init__`, or `super().__init__` in a class whose first base is FSDP."""
    if not isinstance(func, ast.Attribute) or func.attr != "__init__":
        return False
    if not is_super(func.value):
        return _qualified(facts, func.value) == FSDP
    cls = facts.structure.parents.get(facts.function(func))
    return isinstance(cls, ast.ClassDef) and bool(cls.bases) and facts.names.symbols(cls.bases[0]) == {FSDP}


def _given(facts: ModuleFacts) -> Iterator[Given]:
    for one in _constructions(facts):
        yield from _keywords(facts, one.call, one, None)
        for keyword in one.call.keywords:
            if keyword.arg is None:
                yield from _spread(facts, keyword.value, one)
                yield from _handed_on(facts, keyword.value, one)


def _handed_on(facts: ModuleFacts, value: ast.expr, one: _Construction) -> Iterator[Given]:
    """The arguments of calls in this file whose function takes them as `**kwargs` and hands these on."""
    function = facts.function(value)
    if not isinstance(function, ast.FunctionDef) or not isinstance(value, ast.Name):
        return
    if function.args.kwarg is None or function.args.kwarg.arg != value.id:
        return
    doubt = f"`{function.name}` hands it on, maybe not to FSDP only"
    cls = facts.structure.parents[function]
    for call in facts.structure.calls:
        if _calls(facts, call, function, cls if isinstance(cls, ast.ClassDef) else None):
            yield from _keywords(facts, call, one, doubt)


def _calls(facts: ModuleFacts, call: ast.Call, function: ast.FunctionDef, cls: ast.ClassDef | None) -> bool:
    """Whether a call is one of `function`, a method of `cls` where that is given."""
    if cls is None or function.name == "__init__":
        meanings = facts.names.meanings(call.func) if isinstance(call.func, ast.Name) else ()
        return any(m.binding is not None and m.binding.node is (cls or function) for m in meanings)
    if not isinstance(call.func, ast.Attribute) or call.func.attr != function.name:
        return False
    inner = facts.structure.parents.get(facts.function(call))
    return inner is cls and isinstance(call.func.value, ast.Name) and call.func.value.id in ("self", "cls")


def _spread(facts: ModuleFacts, value: ast.expr, one: _Construction) -> Iterator[Given]:
    """The arguments in what is unpacked into a call."""
    if isinstance(value, ast.Name):
        yield from _unpacked(facts, value, one)
    elif isinstance(value, ast.Attribute):
        yield from _stored(facts, value, one)
    elif isinstance(value, ast.Call) and not _is_builtin_dict(facts, value.func):
        yield from _returned(facts, value, one)
    else:
        yield from _held(facts, value, one)
        inner = value.values if isinstance(value, ast.Dict) else []
        for key, part in zip(getattr(value, "keys", ()), inner):
            if key is None and isinstance(part, ast.Name):
                yield from _unpacked(facts, part, one)


def _stored(facts: ModuleFacts, attribute: ast.Attribute, one: _Construction) -> Iterator[Given]:
    """The arguments in a dict that methods of a class keep in an attribute of the instance."""
    doubt = f"`{ast.unparse(attribute)}` can be read from elsewhere too"
    cls = facts.structure.parents.get(facts.function(attribute))
    for node in facts.structure.attributes if isinstance(cls, ast.ClassDef) else ():
        same = node.attr == attribute.attr and ast.dump(node.value) == ast.dump(attribute.value)
        if not same or facts.structure.parents.get(facts.function(node)) is not cls:
            continue
        parent = facts.structure.parents[node]
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and parent.value is not None:
            yield from _held(facts, parent.value, one, doubt)
        yield from _set(facts, node, one, doubt)


def _returned(facts: ModuleFacts, call: ast.Call, one: _Construction) -> Iterator[Given]:
    """The arguments in a dict that a function of the file makes."""
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    functions = [function for function in facts.structure.functions if function.name == name]
    if len(functions) != 1:
        return
    doubt = f"`{name}` may be called for more than building FSDP"
    for node in ast.walk(functions[0]):
        if isinstance(node, ast.Return) and node.value is not None and facts.function(node) is functions[0]:
            if isinstance(node.value, ast.Name):
                yield from _unpacked(facts, node.value, one, doubt)
            else:
                yield from _held(facts, node.value, one, doubt)


def _held(facts: ModuleFacts, holder: ast.expr, one: _Construction, doubt: str | None = None) -> Iterator[Given]:
    """The arguments that a dict display or a call of `dict` holds, by itself or merged with others."""
    doubt = one.doubt or doubt
    if isinstance(holder, ast.Dict):
        for key, value in zip(holder.keys, holder.values):
            if key is None:
                yield from _held(facts, value, one, doubt)
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield Given(key.value, value, facts.source.span(key), holder, one.call, doubt)
    elif isinstance(holder, ast.Call) and _is_builtin_dict(facts, holder.func):
        yield from _keywords(facts, holder, one, doubt)
    for part in _merged(holder):
        yield from _held(facts, part, one, doubt)


def _merged(holder: ast.expr) -> Sequence[ast.expr]:
    """The dicts that `dict(one, **other)`, `one | other` and a choice between two take their items from."""
    if isinstance(holder, ast.Call):
        return [*holder.args, *(keyword.value for keyword in holder.keywords if keyword.arg is None)]
    if isinstance(holder, ast.BinOp) and isinstance(holder.op, ast.BitOr):
        return [holder.left, holder.right]
    return [holder.body, holder.orelse] if isinstance(holder, ast.IfExp) else []


def _keywords(facts: ModuleFacts, holder: ast.Call, one: _Construction, doubt: str | None) -> Iterator[Given]:
    for keyword in holder.keywords:
        if keyword.arg is not None:
            start = facts.source.span(keyword).start
            place = Span(start, start + len(keyword.arg.encode()))
            yield Given(keyword.arg, keyword.value, place, holder, one.call, one.doubt or doubt)


def _is_builtin_dict(facts: ModuleFacts, func: ast.expr) -> bool:
    return isinstance(func, ast.Name) and facts.names.qualified(func) == "builtins.dict"


def _unpacked(facts: ModuleFacts, name: ast.Name, one: _Construction, doubt: str | None = None) -> Iterator[Given]:
    """The arguments in a dict that a name of the same function or of the module holds: as built, and as set."""
    scope = facts.scope(name)
    home = scope.lookup(name.id)
    if home is None or (home is not scope and not home.is_module):
        return
    bindings = home.bindings[name.id]
    parents = [facts.structure.parents.get(binding.node) for binding in bindings]
    unions = [one for one in parents if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.BitOr)]
    own = getattr(getattr(home.node, "args", None), "kwarg", None)  # a dict that no caller has
    if sum(b.kind is not Kind.ASSIGNMENT and b.node is not own for b in bindings) > len(unions):
        return
    doubt = doubt or _other_use(facts, name)
    for value in (*(binding.value for binding in bindings), *(union.value for union in unions)):
        if value is not None:
            yield from _held(facts, value, one, doubt)
    for use in _uses(home, name.id):
        yield from _set(facts, use, one, doubt)


def _uses(home: Scope, name: str) -> Iterator[ast.Name]:
    for inner in home.nested():
        if inner.lookup(name) is home:
            yield from inner.uses.get(name, ())


def _set(facts: ModuleFacts, use: ast.expr, one: _Construction, doubt: str | None) -> Iterator[Given]:
    """The arguments that a statement sets in a dict: by key, by `setdefault` or by `update`."""
    target = facts.structure.parents[use]
    update = _update(facts, use)
    if update is not None and isinstance(update.func, ast.Attribute) and update.func.attr == "setdefault":
        key, *values = [*update.args, *update.args[:1]]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield Given(key.value, values[0], facts.source.span(key), update, one.call, one.doubt or doubt)
    elif update is not None:
        for value in update.args:
            yield from _held(facts, value, one, doubt)
        yield from _keywords(facts, update, one, doubt)
    if not isinstance(target, ast.Subscript) or target.value is not use or not isinstance(target.ctx, ast.Store):
        return
    assignment, key = facts.structure.parents[target], target.slice
    if isinstance(assignment, ast.Assign) and isinstance(key, ast.Constant) and isinstance(key.value, str):
        place = facts.source.span(key)
        yield Given(key.value, assignment.value, place, assignment, one.call, one.doubt or doubt)


def _update(facts: ModuleFacts, use: ast.expr) -> ast.Call | None:
    """The statement `kwargs.update(...)` or `kwargs.setdefault(...)` of which `use` is the dict."""
    method = facts.structure.parents[use]
    call = facts.structure.parents[method]
    if not isinstance(method, ast.Attribute) or method.attr not in _SETTING or not isinstance(call, ast.Call):
        return None
    return call if call.func is method and isinstance(facts.structure.parents[call], ast.Expr) else None


def _other_use(facts: ModuleFacts, name: ast.Name) -> str | None:
    """Why a dict may be read for more than building FSDP, None when every use of the name is for that."""
    taken = {
        keyword.value.id
        for one in _constructions(facts)
        for keyword in one.call.keywords
        if keyword.arg is None and isinstance(keyword.value, ast.Name)
    }
    home = facts.scope(name).lookup(name.id)
    assert home is not None
    elsewhere = facts.names.elsewhere
    if home.is_module and elsewhere is not None and elsewhere.is_imported(name.id):
        return f"another module imports `{name.id}`"
    for use in _uses(home, name.id):
        parent = facts.structure.parents[use]
        sets = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
        sets = sets or _update(facts, use) is not None
        if not sets and not (_unpacks(facts, use) and use.id in taken):
            return f"`{name.id}` is used for more than building FSDP"
    return None


def _unpacks(facts: ModuleFacts, use: ast.Name) -> bool:
    keyword = facts.structure.parents[use]
    if not isinstance(keyword, ast.keyword) or keyword.arg is not None:
        return False
    call = facts.structure.parents[keyword]
    return any(one.call is call for one in _constructions(facts))
