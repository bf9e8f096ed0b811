"""The functions of a project behind calls, and the calls of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from fsdp_migrate.facts import ModuleFacts, Use
from fsdp_migrate.facts.reaching import Reaching
from fsdp_migrate.facts.scopes import Binding, in_force
from fsdp_migrate.records import NamedTuple

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef
_SELF = ("self", "cls")
_MOST_STEPS = 3
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Caller(NamedTuple):
    """A call: the facts of its module, the call, and what to call its file in a message."""

    facts: ModuleFacts
    call: ast.Call
    shown: str


class Function(NamedTuple):
    """A function of the project, with the facts of its module."""

    facts: ModuleFacts
    node: FunctionDef


def called(facts: ModuleFacts, func: ast.expr) -> Function | None:
    """The function that a call of `func` runs, None where it is not visible or may be several."""
    if isinstance(func, ast.Name):
        definition = facts.names.definition(func)
        if isinstance(definition, ast.FunctionDef):
            return Function(facts, definition)
    elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in _SELF:
        return _method(facts, facts.class_around(func), func.attr)
    project, name = facts.project, facts.names.qualified(func)
    if project is None or name is None or name.split(".")[0] == "torch":
        return None
    found = project.function(name)
    return None if found is None else Function(*found)


def _method(facts: ModuleFacts, cls: ast.ClassDef | None, name: str) -> Function | None:
    seen: set[ast.ClassDef] = set()
    waiting = [] if cls is None else [cls]
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for statement in current.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name:
                return Function(facts, statement)
        meanings = [meaning for base in current.bases for meaning in facts.names.meanings(base)]
        nodes = [meaning.binding.node for meaning in meanings if meaning.binding is not None]
        waiting += [node for node in nodes if isinstance(node, ast.ClassDef)]
    return None


def calls_of(facts: ModuleFacts, node: FunctionDef) -> tuple[Caller, ...]:
    """The visible calls of a function: by its name in the project, and of a method by its name on anything."""
    parent = facts.structure.parents[node]
    if isinstance(parent, ast.ClassDef):
        return tuple(_method_calls(facts, parent, node.name))
    scope = facts.structure.scope(node)
    own = [
        Caller(facts, call, facts.path)
        for inner in scope.nested()
        for use in inner.uses.get(node.name, ())
        if inner.lookup(node.name) is scope and (call := _call_by(facts, use)) is not None
    ]
    uses = _uses(facts, node.name) if scope.is_module else ()
    others = [Caller(use.facts, call, use.shown) for use in uses if (call := _call_by(use.facts, use.node)) is not None]
    return (*own, *others)


def _method_calls(facts: ModuleFacts, cls: ast.ClassDef, name: str) -> Iterator[Caller]:
    yield from (Caller(facts, call, facts.path) for call in facts.structure.method_calls.get(name, ()))
    for other, shown in users_of(facts, cls.name):
        yield from (Caller(other, call, shown) for call in other.structure.method_calls.get(name, ()))


def users_of(facts: ModuleFacts, name: str) -> list[tuple[ModuleFacts, str]]:
    """The other modules that read a top-level name of this one, as far as they are visible."""
    return list({id(use.facts): (use.facts, use.shown) for use in _uses(facts, name)}.values())


def _uses(facts: ModuleFacts, name: str) -> Sequence[Use]:
    """The visible places at which other modules read a top-level name of this one."""
    project = facts.project
    return () if project is None else facts.memo((_uses, name), lambda: project.uses(name) or ())


def flow(facts: ModuleFacts, node: ast.AST) -> Iterator[tuple[ModuleFacts, str]]:
    """The module around `node`, and those that lead there: they call its function, or use its class."""
    seen: dict[int, None] = {}
    for other, shown in _leading(facts, node, facts.path, _MOST_STEPS):
        if id(other) not in seen:
            seen[id(other)] = None
            yield other, shown


def _leading(facts: ModuleFacts, node: ast.AST, shown: str, steps: int) -> Iterator[tuple[ModuleFacts, str]]:
    yield facts, shown
    function = facts.function(node)
    if steps == 0 or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    cls = facts.structure.parents[function]
    if isinstance(cls, ast.ClassDef):
        yield from users_of(facts, cls.name)
    for caller in calls_of(facts, function):
        if caller.facts is not facts or caller.call is not node:
            yield from _leading(caller.facts, caller.call, caller.shown, steps - 1)


def _call_by(facts: ModuleFacts, use: ast.expr) -> ast.Call | None:
    parent = facts.structure.parents[use]
    return parent if isinstance(parent, ast.Call) and parent.func is use else None


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """The values that a call passes, by position and by keyword."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def parameter_of(function: Function, call: ast.Call, argument: ast.expr) -> ast.arg | None:
    """The parameter that takes an argument of a call, None where that is not plain to see."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    is_method = isinstance(function.facts.structure.parents[function.node], ast.ClassDef)
    if is_method and not any(getattr(one, "id", "") == "staticmethod" for one in function.node.decorator_list):
        positional = positional[1:]
    for keyword in call.keywords:
        if keyword.value is argument:
            named = [*positional, *arguments.kwonlyargs]
            return next((one for one in named if one.arg == keyword.arg), None)
    if any(isinstance(one, ast.Starred) for one in call.args) or argument not in call.args:
        return None
    index = call.args.index(argument)
    return positional[index] if index < len(positional) else None


def bindings_at(facts: ModuleFacts, use: ast.Name) -> list[Binding]:
    """The bindings that a name may have where it is read, in `x = f(x)` those from before the statement."""
    scope, statement = facts.scope(use), facts.statement(use)
    while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
        scope = scope.parent
    found = scope.bindings.get(use.id, [])
    own = [binding for binding in found if binding.node in ast.walk(statement)]
    if not own or scope.lookup(use.id) is not scope or not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return facts.names.bindings(use)
    if any(isinstance(one, (ast.For, ast.AsyncFor, ast.While)) for one in facts.blocks_around(use)):
        return found
    before = [binding for binding in found if binding.position < (statement.lineno, statement.col_offset)]
    return in_force(before) if before else []


def reads_of(facts: ModuleFacts, target: ast.Name) -> list[ast.Name]:
    """Where a name is read that stands for what it is bound to at `target`; `del` does not count."""
    home = facts.scope(target).lookup(target.id) or facts.scope(target)
    uses = [use for inner in home.nested() for use in inner.uses.get(target.id, ()) if inner.lookup(target.id) is home]
    reading = [use for use in uses if isinstance(use.ctx, ast.Load)]
    reading = [use for use in reading if any(binding.node is target for binding in bindings_at(facts, use))]
    stores = [binding.node for binding in home.bindings.get(target.id, ())]
    reaching, function = facts.memo(Reaching, lambda: Reaching(facts.structure.parents)), facts.function(target)
    return [
        use
        for use in reading
        if facts.function(use) is not function or reaching.may_reach(target, use, target.id, stores)
    ]


def performed(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run with it: those inside of functions and classes that it only defines apart."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if current is node or not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(current)
