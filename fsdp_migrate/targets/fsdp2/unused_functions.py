"""Functions of a module that nothing calls: they use models of FSDP1, and follow where the others of their module go.

No model gets there. So they are converted where that is possible, and stay as they are where it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Reference, Value, follow
from fsdp_migrate.facts.project_code import Code, Function
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.targets.fsdp2.closures import MODEL
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion, Options
from fsdp_migrate.targets.fsdp2.states import convert_states
from fsdp_migrate.targets.fsdp2.uses import convert_use


def convert_unused_functions(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Add the functions that are converted along with a closure, if it is converted."""
    if conversion.walls or closure.escapes:
        return
    built = {one.call for one in closure.constructions}
    for facts in modules_of(closure):
        if built.issuperset(facts.fsdp.constructions):
            for function in facts.structure.functions:
                if is_unused(conversion.code, facts, function):
                    references = _references(conversion.code, facts, function)
                    _try(conversion, closure._replace(references=references, passed=(), escapes=()), options)


def modules_of(closure: Closure) -> list[ModuleFacts]:
    """The modules in which models of a closure are built or used."""
    modules = [one.facts for one in closure.constructions]
    modules += [one.facts for one in (*closure.references, *closure.passed)]
    return list(dict.fromkeys(modules))


def is_unused(code: Code, facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a node is a function that nothing in the project calls or passes on."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.decorator_list:
        return False
    function = Function(facts, node)
    callers = code.callers(function)
    return code.class_of(function) is None and not (callers.sites or callers.elsewhere or callers.hidden)


def _references(code: Code, facts: ModuleFacts, function: ast.AST) -> tuple[Reference, ...]:
    """The uses, in a function, of its parameters that are given to methods of FSDP1's class."""
    seeds = [Value(facts, load) for load in _models(code, facts, function)]
    found = follow(seeds, nature=MODEL, code=code) if seeds else None
    inside = set(ast.walk(function))
    return tuple(one for one in found.references if one.node in inside) if found is not None else ()


def _models(code: Code, facts: ModuleFacts, function: ast.AST) -> Iterator[ast.Name]:
    for call in facts.structure.calls:
        if isinstance(call.func, ast.Attribute) and facts.function(call) is function and call.args:
            model = call.args[0]
            known = facts.names.bindings(model) if isinstance(model, ast.Name) else []
            if facts.fsdp.is_class(call.func.value) and [one.kind for one in known] == [Kind.PARAMETER]:
                assert isinstance(model, ast.Name)
                yield from code.loads(known[0].scope, model.id)


def _try(conversion: Conversion, closure: Closure, options: Options) -> None:
    """Convert the uses in one function, or none of them."""
    if not closure.references:
        return
    own = Conversion(code=conversion.code)
    convert_states(own, closure, options)
    for reference in closure.references:
        if reference.node not in own.settled:
            convert_use(own, closure, reference, options)
    if not own.walls:
        for path, edits in own.edits.items():
            conversion.edits.setdefault(path, []).extend(edits)
        for path, removed in own.removed.items():
            conversion.removed.setdefault(path, []).extend(removed)
