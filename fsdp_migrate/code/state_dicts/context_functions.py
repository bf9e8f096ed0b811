"""Functions of a project that give their callers a context with a state-dict type.

Such a function returns `FSDP.state_dict_type(...)`, or is a `contextmanager` that yields within it. The blocks of its
callers are rewritten, in whatever module they are, and the function goes with its last use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from fsdp_migrate.code.state_dicts.functions import Caller, called, calls_of, users_of
from fsdp_migrate.code.state_dicts.rewriting import (
    USUAL,
    Manner,
    Rewritten,
    SettingAt,
    of_context,
    or_reason,
    removed_names,
)
from fsdp_migrate.code.state_dicts.settings import Follow, Given, NotUnderstood
from fsdp_migrate.code.unused_imports import removed_use, strings_naming
from fsdp_migrate.edits import Edit, RemovedUse, RemoveStatement
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.fsdp import Receiver, TypeSetting
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.findings import Fix
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.source import Span

_MANAGER = "contextlib.contextmanager"
_SELF = "self"


class ContextFunction(NamedTuple):
    """A function that gives the context of a setting, and does no more."""

    facts: ModuleFacts
    node: ast.FunctionDef
    setting: TypeSetting

    @property
    def is_method(self) -> bool:
        """Whether it is defined in a class."""
        return isinstance(self.facts.structure.parents[self.node], ast.ClassDef)


class Spread(NamedTuple):
    """What becomes of such a function and its callers: the edits by the paths of modules, and their grade.

    The function itself `goes`, unless something may still ask for it. `blocks` are its callers, each with what becomes
    of its block.
    """

    fixes: Mapping[str, Fix]
    unsafe: str | None
    floor: str
    functions: tuple[str, ...]
    goes: bool
    blocks: tuple[tuple[Caller, Rewritten], ...] = ()

    def verdict(self, path: str) -> Verdict:
        """The verdict on the setting in the module at `path`."""
        return Verdict(self.fixes[path], unsafe=self.unsafe)


def context_function(facts: ModuleFacts, setting: TypeSetting) -> ContextFunction | None:
    """The function around a setting, if it gives the context to its callers and does no more."""
    node = facts.function(setting.call)
    if not isinstance(node, ast.FunctionDef):
        return None
    *before, last = node.body
    gives = _returns(facts, node, last, setting) or _yields(facts, node, last, setting)
    if gives and all(_only_prepares(facts, one, setting) for one in before):
        return ContextFunction(facts, node, setting)
    return None


def _returns(facts: ModuleFacts, node: ast.FunctionDef, last: ast.stmt, setting: TypeSetting) -> bool:
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.Name):
        value = facts.names.value(value)
    return value is setting.call and not node.decorator_list


def _yields(facts: ModuleFacts, node: ast.FunctionDef, last: ast.stmt, setting: TypeSetting) -> bool:
    if [facts.names.qualified(one) for one in node.decorator_list] != [_MANAGER] or not isinstance(last, ast.With):
        return False
    (item, *more), (statement, *others) = last.items, last.body
    plain = item.context_expr is setting.call and item.optional_vars is None and not more and not others
    given = statement.value if isinstance(statement, ast.Expr) else None
    return plain and isinstance(given, ast.Yield) and given.value is None


def _only_prepares(facts: ModuleFacts, statement: ast.stmt, setting: TypeSetting) -> bool:
    """Whether a statement is a docstring, an import, or gives the context or a config a name."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.Assign) or not all(isinstance(one, ast.Name) for one in statement.targets):
        return False
    value = statement.value
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return value is setting.call or all(pure(one) or facts.fsdp.config(one) is not None for one in parts)


def of_function(one: ContextFunction, manner: Manner = USUAL) -> Spread | str:
    """What becomes of a function that gives a context, and of its callers; or why all stay."""
    return or_reason(one.facts, (of_function, one.node, manner), lambda: _spread(one, manner))


def _spread(one: ContextFunction, manner: Manner) -> Spread:
    receiver = one.facts.fsdp.receiver(one.setting.call.func, one.setting.model)
    if receiver is None or receiver.doubt is not None:
        raise NotUnderstood("only torch's FSDP can be rewritten")
    callers = _callers(one)
    found = [(caller, _of_caller(one, caller, manner)) for caller in callers]
    by_path: dict[str, list[Fix]] = {}
    for caller, new in found:
        assert new.verdict.fix is not None
        by_path.setdefault(caller.facts.path, []).append(new.verdict.fix)
    _check_apart(callers)
    goes = _may_go(one, callers)
    if goes:
        by_path.setdefault(one.facts.path, []).append(_removal(one))
    by_path.setdefault(one.facts.path, [])
    reasons = dict.fromkeys(_told(one, caller, new) for caller, new in found if new.verdict.unsafe is not None)
    return Spread(
        {path: _united(fixes) for path, fixes in by_path.items()},
        "; ".join(reasons) or None,
        max((new.floor for _, new in found), key=Version),
        tuple(dict.fromkeys(name for _, new in found for name in new.functions)),
        goes,
        tuple(found),
    )


def _told(one: ContextFunction, caller: Caller, new: Rewritten) -> str:
    return f"{_place(one, caller)}: {new.verdict.unsafe}"


def _place(one: ContextFunction, caller: Caller) -> str:
    line = f"line {caller.call.lineno}"
    return line if caller.facts is one.facts else f"{caller.shown}:{caller.call.lineno}"


def _united(fixes: Sequence[Fix]) -> Fix:
    edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
    return Fix(tuple(edits), tuple(dict.fromkeys(use for fix in fixes for use in fix.removed_uses)))


def _callers(one: ContextFunction) -> tuple[Caller, ...]:
    """All calls of the function.

    Raises:
        NotUnderstood: there are none, or other uses of it too.
    """
    facts, name = one.facts, one.node.name
    if one.is_method:
        _check_method(one)
    elif len(facts.structure.scope(one.node).bindings[name]) != 1:
        raise NotUnderstood(f"`{name}` is defined in several ways: keep one of them")
    else:
        _check_uses(one)
    callers = calls_of(facts, one.node)
    if not callers:
        raise NotUnderstood(
            f"no visible code calls `{name}`, which gives the context to its callers: remove it, or call the new "
            "functions there"
        )
    return callers


def _check_uses(one: ContextFunction) -> None:
    facts, name = one.facts, one.node.name
    home = facts.structure.scope(one.node)
    uses = [use for inner in home.nested() for use in inner.uses.get(name, ()) if inner.lookup(name) is home]
    places: list[tuple[ModuleFacts, ast.expr, str]] = [(facts, use, f"line {use.lineno}") for use in uses]
    if facts.project is not None and home.is_module:
        reads = facts.project.reads(name)
        if reads.hidden:
            raise NotUnderstood(f"a file that may use `{name}` cannot be read")
        places += [(use.facts, use.node, f"{use.shown}:{use.node.lineno}") for use in reads.uses]
    for where, use, shown in places:
        parent = where.structure.parents[use]
        if not isinstance(parent, ast.Call) or parent.func is not use or called(where, use) is None:
            raise NotUnderstood(f"{shown} uses `{name}` otherwise than by a call: call it there")


def _check_method(one: ContextFunction) -> None:
    facts, name = one.facts, one.node.name
    cls = facts.structure.parents[one.node]
    assert isinstance(cls, ast.ClassDef)
    modules = [(facts, facts.path), *users_of(facts, cls.name)]
    defined = [function for where, _ in modules for function in where.structure.functions if function.name == name]
    if len(defined) != 1:
        raise NotUnderstood(f"`{name}` is defined in several ways: keep one of them")
    for where, shown in modules:
        for node in where.structure.attributes:
            if node.attr != name:
                continue
            parent = where.structure.parents[node]
            target = called(where, node) if isinstance(parent, ast.Call) and parent.func is node else None
            if target is None or target.node is not one.node:
                place = f"line {node.lineno}" if where is facts else f"{shown}:{node.lineno}"
                raise NotUnderstood(f"whether {place} means this `{name}` is not visible: call the new functions there")


def _of_caller(one: ContextFunction, caller: Caller, manner: Manner) -> Rewritten:
    """What becomes of one call of the function.

    Raises:
        NotUnderstood: it stays; the reason says where it is.
    """

    def found() -> Rewritten:
        given = _arguments(one, caller)
        model = _model(one, caller, given)
        setting = SettingAt(one.facts, one.setting, _following(one, given))
        return of_context(caller.facts, caller.call, model, setting, Receiver(model, ()), manner)

    new = or_reason(caller.facts, (_of_caller, caller.call, manner), found)
    if isinstance(new, str):
        raise NotUnderstood(f"`{one.node.name}` gives the context to {_place(one, caller)}, which stays: {new}")
    return new


def _arguments(one: ContextFunction, caller: Caller) -> dict[str, Given]:
    """What the parameters stand for at a call, by their names."""
    arguments = one.node.args
    if arguments.vararg is not None or arguments.kwarg is not None:
        raise NotUnderstood("the function takes any arguments")
    positional = [*arguments.posonlyargs, *arguments.args][one.is_method :]
    named = [one.arg for one in (*positional, *arguments.kwonlyargs)]
    defaults = dict(zip([one.arg for one in reversed(positional)], reversed(arguments.defaults)))
    defaults.update(
        {a.arg: value for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value is not None}
    )
    try:
        bound = bind(caller.call, tuple(named), len(positional) - len(arguments.defaults))
    except BindingError as error:
        raise NotUnderstood(f"`{one.node.name}` {error}") from None
    found = {name: Given(one.facts, value) for name, value in defaults.items()}
    return {**found, **{name: Given(caller.facts, argument.value) for name, argument in bound.items()}}


def _following(one: ContextFunction, given: Mapping[str, Given]) -> Follow:
    """What expressions of the function stand for at a call."""

    def follow(asked: Given) -> Given:
        node = asked.node
        if asked.facts is not one.facts or not isinstance(node, ast.Name) or one.facts.function(node) is not one.node:
            return asked
        return given.get(node.id, asked) if _is_parameter(one, node) else asked

    return follow


def _is_parameter(one: ContextFunction, node: ast.Name) -> bool:
    """Whether a name in the function is what a call passes, not something that is assigned to it."""
    bindings = one.facts.names.bindings(node)
    return len(bindings) == 1 and bindings[0].kind is Kind.PARAMETER


def _model(one: ContextFunction, caller: Caller, given: Mapping[str, Given]) -> ast.expr:
    """The expression that stands for the model around a call.

    Raises:
        NotUnderstood: it is not plain to see.
    """
    text = _text_of_model(one, caller, given)
    if isinstance(one.setting.model, ast.Name) and one.setting.model.id in given:
        return given[one.setting.model.id].node
    around = caller.facts.function(caller.call)
    inside = (node for node in ast.walk(around) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)))
    nodes = (node for node in inside if isinstance(node.ctx, ast.Load) and ast.unparse(node) == text)
    found = next(nodes, None)
    if found is None:
        raise NotUnderstood(f"no visible code asks `{text}` for state there")
    return found


def _text_of_model(one: ContextFunction, caller: Caller, given: Mapping[str, Given]) -> str:
    model = root = one.setting.model
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    text = ast.unparse(model)
    if not isinstance(root, ast.Name):
        raise NotUnderstood(f"`{text}` is made where the context is")
    rest = text[len(root.id) :]
    argument = given.get(root.id) if _is_parameter(one, root) else None
    if argument is not None:
        if argument.facts is not caller.facts or not pure(argument.node):
            raise NotUnderstood(f"which model `{text}` is there is not visible")
        return f"{ast.unparse(argument.node)}{rest}"
    home = one.facts.scope(root).lookup(root.id)
    is_own = one.is_method and root.id == one.node.args.args[0].arg == _SELF
    owner = caller.call.func.value if isinstance(caller.call.func, ast.Attribute) else None
    if is_own and isinstance(owner, ast.Name) and owner.id == _SELF:
        return text
    shared = home is not None and home.is_module and caller.facts is one.facts
    if not shared or caller.facts.scope(caller.call).lookup(root.id) is not home:
        raise NotUnderstood(f"which model `{text}` is there is not visible")
    return text


def _check_apart(callers: Sequence[Caller]) -> None:
    """Let pass calls whose blocks do not lie within one another.

    Raises:
        NotUnderstood: some do.
    """
    blocks = [(caller.facts, caller.facts.statement(caller.call)) for caller in callers]
    for facts, statement in blocks:
        for other, inner in blocks:
            if other is facts and inner is not statement and statement in facts.blocks_around(inner):
                raise NotUnderstood(f"the block in line {inner.lineno} is inside of another: split the two")


def _may_go(one: ContextFunction, callers: Sequence[Caller]) -> bool:
    """Whether nothing asks for the function once its callers do not."""
    facts, node = one.facts, one.node
    block = getattr(facts.structure.parents[node], "body", [])
    if len(block) == 1 or any(True for _ in strings_naming(facts, node.name)):
        return False
    if facts.structure.scope(node).is_function or (node.name.startswith("_") and facts.project is None):
        return True
    if facts.project is None:
        return False
    if one.is_method:
        return not facts.project.writing(node.name)
    takers = facts.project.takers(node.name)
    modules = {caller.facts.path: caller.facts for caller in callers}
    return takers is not None and all(path in modules and _leaves(modules[path], node.name, callers) for path in takers)


def _leaves(facts: ModuleFacts, name: str, callers: Sequence[Caller]) -> bool:
    """Whether the imports of a name in the module of a caller go with the calls."""
    calls = [caller.call.func for caller in callers if caller.facts is facts]
    gone = [use for call in calls for use in removed_use(facts, call)]
    spans = {use.span for use in gone}
    bindings = {use.binding.statement: use.binding for use in gone}
    for node in facts.structure.imports:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            binding = bindings.get(facts.source.span(node))
            if binding is None or not binding.removable or not spans.issuperset(binding.uses):
                return False
    return True


def _span(one: ContextFunction) -> Span:
    source, node = one.facts.source, one.node
    first = node.decorator_list[0] if node.decorator_list else node
    start = source.line_start(source.span(first).start)
    indent = len(one.facts.indentation(node).encode())
    return Span(start + indent, source.span(node).end)


def _removal(one: ContextFunction) -> Fix:
    span = _span(one)
    comments = tuple(text for place, text in one.facts.source.comments if span.contains(place))
    edits: tuple[Edit, ...] = (RemoveStatement(span, comments),)
    names = (node for node in ast.walk(one.node) if isinstance(node, ast.Name))
    return Fix(edits, tuple(_uses(one.facts, names)))


def _uses(facts: ModuleFacts, names: Iterator[ast.Name]) -> Iterator[RemovedUse]:
    yield from dict.fromkeys(use for name in names for use in removed_names(facts, name))
