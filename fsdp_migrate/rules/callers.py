"""What the callers of a function know of the optimizer that it does without."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.elsewhere import Caller, calls_among

OPTIMIZER_NAMES = ("optim", "optimizer", "opt")
_MOST_NAMED = 3


def told_by_callers(facts: ModuleFacts, call: ast.Call) -> str | None:
    """A reason that names the callers of the function around `call` and what they can give it.

    None unless each of them, all over the project, passes an optimizer or has exactly one at hand.
    """
    function = facts.function(call)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function not in facts.source.tree.body:
        return None
    callers = _callers(facts, function)
    if not callers:
        return None
    parameter = _passed(function, callers)
    if parameter is not None:
        named = _listed([_where(caller) for caller in callers])
        said = f"every caller of `{function.name}` passes an optimizer as `{parameter}`, {named}"
        return f"{said}: pass `optim={parameter}`"
    at_hand = [_optimizers(caller) for caller in callers]
    if any(len(found) != 1 for found in at_hand):
        return None
    named = _listed([f"`{found[0]}` {_where(caller)}" for found, caller in zip(at_hand, callers)])
    said = f"the optimizer is not visible in `{function.name}`: add a parameter `optimizer`"
    return f"{said}, give it as `optim=optimizer`, and pass {named}"


def _callers(facts: ModuleFacts, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Caller]:
    """Every call of the function in the project, none where there may be others."""
    elsewhere = facts.names.elsewhere
    found = () if elsewhere is None else calls_among(elsewhere.uses(function.name))
    bindings = facts.structure.module.bindings.get(function.name, [])
    if found is None or len(bindings) != 1:
        return []
    own: list[Caller] = []
    for scope in facts.structure.module.nested():
        for use in scope.uses.get(function.name, ()):
            if scope.lookup(function.name) is not facts.structure.module:
                continue
            parent = facts.structure.parents[use]
            if not isinstance(parent, ast.Call) or parent.func is not use:
                return []
            own.append(Caller(facts, parent, facts.path))
    return [*own, *found]


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, callers: Sequence[Caller]) -> str | None:
    """The only parameter that gets an optimizer from every caller."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    given: list[set[str]] = []
    for caller in callers:
        try:
            bound = bind(caller.call, tuple(names), 0)
        except BindingError:
            return None
        given.append({name for name, argument in bound.items() if _is_optimizer(caller.facts, argument.value)})
    common = set.intersection(*given)
    return common.pop() if len(common) == 1 else None


def _optimizers(caller: Caller) -> list[str]:
    """The optimizers that the function of a call reads or binds, as written there."""
    facts, function = caller.facts, caller.facts.function(caller.call)
    arguments = getattr(function, "args", None)
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and facts.structure.parents[node] is arguments and _named_so(node.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.Name, ast.Attribute)) and facts.function(node) is function:
            found.update([ast.unparse(node)] if _is_optimizer(facts, node) else ())
    return sorted(found)


def _is_optimizer(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an expression is an optimizer by its name or by what it was built as."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        values = facts.names.definitions(node)
        if values and all(_builds_optimizer(facts, value) for value in values):
            return True
    if any(m.qualified is not None and not m.qualified.startswith("builtins.") for m in facts.names.meanings(node)):
        return False
    return is_called_optimizer(node)


def is_called_optimizer(node: ast.expr) -> bool:
    """Whether a name or attribute is called as optimizers are."""
    return _named_so(node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", ""))


def _named_so(name: str) -> bool:
    return name.rpartition("_")[2] in OPTIMIZER_NAMES


def _builds_optimizer(facts: ModuleFacts, value: ast.expr) -> bool:
    qualified = facts.names.qualified(value.func) if isinstance(value, ast.Call) else None
    return qualified is not None and qualified.startswith("torch.optim.")


def _where(caller: Caller) -> str:
    name = caller.facts.function_name(caller.call)
    place = f"{caller.shown}:{caller.call.lineno}"
    return f"in {place}" if name == "this module" else f"in {name} ({place})"


def _listed(texts: Sequence[str]) -> str:
    """Some texts as a list in words, the first few of them."""
    more = [f"{len(texts) - _MOST_NAMED} more"] if len(texts) > _MOST_NAMED else []
    *before, last = [*texts[:_MOST_NAMED], *more]
    return f"{', '.join(before)} and {last}" if before else last
