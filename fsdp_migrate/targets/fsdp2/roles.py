"""Which of the constructions of a model is the outermost one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.project_code import Class, Code, Function
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction


def is_inner(closure: Closure, one: Construction, code: Code) -> bool | None:
    """Whether another construction wraps what this one does, None where that is not to be seen."""
    others = [other for other in closure.constructions if other.call is not one.call]
    if not others:
        return None if _wraps_parts(one, code) else False
    homes = list(_homes(one.facts, one.call))
    if not homes:
        return None if _may_be_both(one) else False
    for home in homes:
        if any(other.facts is one.facts and _wraps(other, home) for other in others):
            return True
    cls = one.facts.class_around(one.call)
    if cls is not None and any(home == "self" for home in homes):
        if any(_builds(other, cls) for other in others):
            return True
        return None if _may_be_module(Class(one.facts, cls), code) else False
    return False


def _homes(facts: ModuleFacts, call: ast.Call) -> Iterator[str]:
    """What the wrapped module is stored in, from the outside in: `model` and `model.layers` for `model.layers[0]`."""
    statement = facts.statement(call)
    targets: list[ast.expr | None] = [getattr(statement, "target", None)]
    if isinstance(statement, ast.Assign):
        targets = [*statement.targets]
    named = facts.structure.parents[call]
    if isinstance(named, ast.Call) and getattr(named.func, "id", "") == "setattr":
        yield ast.unparse(named.args[0])
    if (
        isinstance(named, ast.Call)
        and isinstance(named.func, ast.Attribute)
        and named.func.attr in ("append", "insert")
    ):
        targets = [ast.Attribute(named.func.value, "append")]
    for target in targets:
        part = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
        while part is not None:
            yield ast.unparse(part)
            part = part.value if isinstance(part, (ast.Attribute, ast.Subscript)) else None


def module_of(call: ast.Call) -> ast.expr | None:
    """What a construction wraps, None where that is unpacked into it."""
    return call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "module"), None)


def _wraps(other: Construction, home: str) -> bool:
    module = module_of(other.call)
    return module is not None and ast.unparse(module) == home and home != "self"


def _builds(other: Construction, cls: ast.ClassDef) -> bool:
    """Whether what another construction wraps is an instance of a class of the same name."""
    module = module_of(other.call)
    if isinstance(module, ast.Name):
        module = other.facts.names.value(module) or module
    while isinstance(module, ast.Call) and isinstance(module.func, ast.Attribute) and module.func.attr in _SAME:
        module = module.func.value
    if isinstance(module, ast.Name) and module.id == "self":
        return other.facts.class_around(other.call) is cls
    name = (other.facts.names.qualified(module.func) or "") if isinstance(module, ast.Call) else ""
    return name.rpartition(".")[2] == cls.name


_SAME = ("to", "cuda", "cpu", "train", "eval", "bfloat16", "half", "float")


def _may_be_module(cls: Class, code: Code) -> bool:
    """Whether objects of a class may be modules, which others wrap."""
    return any(code.bases(one)[1] for one in (cls, *code.ancestors(cls)))


def _wraps_parts(one: Construction, code: Code) -> bool:
    """Whether the construction stands in a function that several callers use, for a part of something too."""
    function = one.facts.function(one.call)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    sites = code.callers(Function(one.facts, function)).sites
    return len(sites) > 1 and any(home != "self" for site in sites for home in _homes(site.facts, site.call))


def _may_be_both(one: Construction) -> bool:
    """Whether the construction stands in a function, so that others may give the result to one another."""
    statement = one.facts.statement(one.call)
    return isinstance(statement, ast.Return) or not isinstance(statement, (ast.Assign, ast.AnnAssign))
