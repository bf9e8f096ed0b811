"""The places in a file that pass keyword arguments to FSDP's constructor: in a call, a partial, or a dict."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_dicts import (
    Construction,
    Given,
    bound_to,
    dict_scope,
    given_in,
    keywords,
    update_of,
    uses_in,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.class_members import is_super
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.names import PACKAGE

PARTIAL = "functools.partial"
_WRAPS = (f"{PACKAGE}.wrap.enable_wrap", f"{PACKAGE}.wrap.wrap")


def given(facts: ModuleFacts) -> tuple[Given, ...]:
    """Every argument that reaches the constructor under its name."""
    return facts.memo(given, lambda: tuple(_given(facts)))


def constructions(facts: ModuleFacts) -> tuple[ast.Call, ...]:
    """The calls of the constructor, and of subclasses if none has its own constructor."""
    return tuple(one.call for one in _constructions(facts) if constructs(facts, one.call.func) and one.doubt is None)


def constructs(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether `node` may be FSDP, or a subclass with its constructor."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    symbols = facts.names.symbols(node)
    return any(symbol is not None and _is_fsdp(facts, symbol) for symbol in symbols)


def _is_fsdp(facts: ModuleFacts, symbol: str) -> bool:
    if symbol == FSDP:
        return True
    return facts.fsdp.is_subclass(symbol) and not facts.memo(_builds_its_own, lambda: _builds_its_own(facts))


def _builds_its_own(facts: ModuleFacts) -> bool:
    """Whether a subclass of FSDP has its own constructor, or a metaclass, which calls it."""
    if any(facts.fsdp.overriding(name) is not None for name in ("__init__", "__new__")):
        return True
    classes = (scope.node for scope in facts.structure.module.nested() if isinstance(scope.node, ast.ClassDef))
    made = (cls for cls in classes if any(keyword.arg == "metaclass" for keyword in cls.keywords))
    return any(FSDP in facts.names.symbols(base) for cls in made for base in cls.bases)


def _constructions(facts: ModuleFacts) -> tuple[Construction, ...]:
    return facts.memo(_constructions, lambda: tuple(_found(facts)))


def _found(facts: ModuleFacts) -> Iterator[Construction]:
    for call in facts.structure.calls if _may_construct(facts.written) else ():
        cls = _constructed(facts, call)
        if cls is not None:
            symbols = facts.names.symbols(cls) if cls is not call else {FSDP}
            other = any(symbol is None or not _is_fsdp(facts, symbol) for symbol in symbols)
            yield Construction(call, f"`{ast.unparse(cls)}` may also be another class here" if other else None)


def _may_construct(written: bytes) -> bool:
    """Whether a text names the class, or may name a function that wraps modules into it."""
    return b"FullyShardedDataParallel" in written or (b"fsdp" in written and b"wrap" in written)


def _constructed(facts: ModuleFacts, call: ast.Call) -> ast.expr | None:
    """The expression for FSDP in a call that builds it; the call itself if the class is given elsewhere."""
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
            given_there = (one for one in given_in(facts, value, Construction(call)) if one.name == "wrapper_cls")
            if (found := next(given_there, None)) is not None:
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
        yield from keywords(facts, one.call, one, None)
        for keyword in one.call.keywords:
            if keyword.arg is None:
                yield from _spread(facts, keyword.value, one)


def _spread(facts: ModuleFacts, value: ast.expr, one: Construction) -> Iterator[Given]:
    """The arguments in the value that is unpacked into a call."""
    if isinstance(value, ast.Name):
        yield from _unpacked(facts, value, one)
    else:
        yield from given_in(facts, value, one)
        inner = value.values if isinstance(value, ast.Dict) else []
        for key, part in zip(getattr(value, "keys", ()), inner):
            if key is None and isinstance(part, ast.Name):
                yield from _unpacked(facts, part, one)


def _unpacked(facts: ModuleFacts, name: ast.Name, one: Construction, doubt: str | None = None) -> Iterator[Given]:
    """The arguments in the dict of a name of the same function, or of the module."""
    home = dict_scope(facts, name)
    if home is not None and next(bound_to(facts, home, name.id, one, None), None) is not None:
        yield from bound_to(facts, home, name.id, one, doubt or _other_use(facts, name))


def _other_use(facts: ModuleFacts, name: ast.Name) -> str | None:
    """Why a dict may be used for more than building FSDP, None if all uses of its name are for that."""
    taken = {
        keyword.value.id
        for one in _constructions(facts)
        for keyword in one.call.keywords
        if keyword.arg is None and isinstance(keyword.value, ast.Name)
    }
    home = facts.scope(name).lookup(name.id)
    assert home is not None
    project = facts.project
    if home.is_module and project is not None and project.is_imported(name.id):
        return f"another module imports `{name.id}`"
    for use in uses_in(home, name.id):
        parent = facts.structure.parents[use]
        sets = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
        sets = sets or update_of(facts, use) is not None
        if not sets and not (_unpacks(facts, use) and use.id in taken):
            return f"`{name.id}` is used for more than building FSDP"
    return None


def _unpacks(facts: ModuleFacts, use: ast.Name) -> bool:
    keyword = facts.structure.parents[use]
    if not isinstance(keyword, ast.keyword) or keyword.arg is not None:
        return False
    call = facts.structure.parents[keyword]
    return any(one.call is call for one in _constructions(facts))
