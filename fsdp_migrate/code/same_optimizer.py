"""Whether an expression is the right optimizer at the place where it would be used."""

from __future__ import annotations

import ast

from fsdp_migrate.code.optimizer_classes import no_optimizer
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.binding import Loop, surely_bound
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.evaluation import is_reading, pure
from fsdp_migrate.facts.rebinding import changed_between, place_of

# What also has a `load_state_dict` and is no optimizer.
_OTHERS = frozenset(
    "scheduler sched scaler ema self cls module net dataloader sampler wrapper model engine strategy trainer runner "
    "state accelerator manager checkpointer".split()
)
# Methods of an object that certainly do not give it another optimizer.
_READING = ("get_", "is_", "has_", "should_")
_HARMLESS = ("log", "info", "debug", "warning", "print", "barrier", "load_state_dict", "wait_for_everyone")


class NoOptimizer(Exception):
    """The optimizer is not visible. The message is a reason for the user."""


def check_usable(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr, model: ast.expr) -> None:
    """Check that `optimizer`, found elsewhere in the function, is bound at `call` to the same object.

    Raises:
        NoOptimizer: it is not, or it is something else than an optimizer.
    """
    text = ast.unparse(optimizer)
    if not pure(optimizer):
        raise NoOptimizer(f"the result is loaded into `{text}`: assign that to a variable before this call")
    if ast.dump(optimizer) == ast.dump(model):
        raise NoOptimizer(
            f"the result is loaded into the model `{text}`, which has no optimizer state: load it into the optimizer"
        )
    if _is_something_else(facts, optimizer):
        raise NoOptimizer(f"the result is loaded into `{text}`, which is not an optimizer: pass `optim=`")
    cls = no_optimizer(facts, optimizer)
    if cls is not None:
        raise NoOptimizer(
            f"`{text}` is an instance of `{cls}`, which is not an optimizer: pass the optimizer as `optim=`"
        )
    root = _root(optimizer)
    _check_bound(facts, call, root, text)
    if changed_between(facts, optimizer, place_of(call), place_of(optimizer)):
        raise NoOptimizer(f"`{text}` is reassigned between this call and its use: create it before both")
    if (other := _other_model(facts, optimizer, model)) is not None:
        raise NoOptimizer(f"`{text}` was built for `{other}`, not for `{ast.unparse(model)}`: pass `optim=`")
    if _outlives(facts, call, optimizer, model):
        turn = f"`{ast.unparse(model)}` is another model in each iteration of the loop"
        raise NoOptimizer(f"{turn}, but `{text}` is the same optimizer: pass `optim=`")
    between = _may_replace(facts, call, optimizer, root)
    if between is not None:
        raise NoOptimizer(
            f"`{between}` runs between this call and the use of `{text}` and may assign it: pass "
            f"`optim={text}` if it already exists here"
        )


def _other_model(facts: ModuleFacts, optimizer: ast.expr, model: ast.expr) -> str | None:
    """The model that an optimizer of the file is built for, if it has nothing to do with `model`."""
    built = facts.names.value(optimizer) if isinstance(optimizer, ast.Name) else None
    given = _parameters_of(built) if isinstance(built, ast.Call) else None
    if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute) or given.func.attr != "parameters":
        return None
    other = given.func.value
    return None if _names_in(facts, other) & _names_in(facts, model) else ast.unparse(other)


def _parameters_of(built: ast.Call) -> ast.expr | None:
    """The parameters that an optimizer is built for: its first argument, or `params`."""
    named = (keyword.value for keyword in built.keywords if keyword.arg == "params")
    return built.args[0] if built.args else next(named, None)


def _names_in(facts: ModuleFacts, node: ast.expr) -> set[str]:
    """The names in an expression and in what these are bound to, as far as that goes."""
    found: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Name) and part.id not in found:
                found.add(part.id)
                waiting += [b.value for b in facts.names.bindings(part) if b.value is not None]
    return found


def _outlives(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr, model: ast.expr) -> bool:
    """Whether a loop around `call` changes the model but not the optimizer."""
    for loop in facts.blocks_around(call):
        if isinstance(loop, Loop):
            ends = place_of(loop), (loop.end_lineno or 0, loop.end_col_offset or 0)
            if changed_between(facts, model, *ends) and not changed_between(facts, optimizer, *ends):
                return True
    return False


def _is_something_else(facts: ModuleFacts, optimizer: ast.expr) -> bool:
    if isinstance(optimizer, (ast.Name, ast.Attribute)) and any(
        meaning.qualified is not None and not meaning.qualified.startswith("builtins.")
        for meaning in facts.names.meanings(optimizer)
    ):
        return True
    name = optimizer.attr if isinstance(optimizer, ast.Attribute) else getattr(optimizer, "id", "")
    return name.rpartition("_")[2].lower() in _OTHERS


def _root(node: ast.expr) -> ast.Name:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    assert isinstance(node, ast.Name)
    return node


def _check_bound(facts: ModuleFacts, call: ast.Call, root: ast.Name, text: str) -> None:
    """Check that the name of the optimizer, or of its owner, is bound when `call` runs."""
    scope = facts.scope(call)
    home = scope.lookup(root.id)
    if any(root.id in outer.declared_global | outer.declared_nonlocal for outer in scope.enclosing()):
        raise NoOptimizer(f"`{root.id}` is declared global here and may change: pass `optim={text}`")
    if home is None or home.node is not facts.function(call):
        return
    bindings, own = home.bindings[root.id], facts.statement(call)
    before = [one for one in bindings if one.position < place_of(call) and facts.statement(one.node) is not own]
    if not before and any(facts.statement(one.node) is own for one in bindings):
        raise NoOptimizer(f"`{text}` is created by the statement of this call: create it in an earlier statement")
    if not before:
        raise NoOptimizer(f"`{text}` is created after this call: create it before the call")
    if all(is_literal(b.value, None) for b in before):
        raise NoOptimizer(f"`{text}` is still None at this call: create it before the call")
    if not surely_bound(root.id, call, facts.structure.parents):
        raise NoOptimizer(f"`{text}` is not assigned on every path to this call: assign it on all of them")


def _may_replace(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr, root: ast.Name) -> str | None:
    """A call between `call` and the use of `optimizer` that could assign it, or its owner, anew."""
    first, last = sorted((place_of(call), place_of(optimizer)))
    home = facts.scope(call).lookup(root.id)
    is_local = home is not None and home.node is facts.function(call)
    if is_local and isinstance(optimizer, ast.Name):
        return None
    own = set(ast.walk(call))
    for other in facts.structure.calls:
        if other in own or not first < place_of(other) < last or facts.function(other) is not facts.function(call):
            continue
        if is_reading(other, facts.names) or not _reaches(facts, other, root, is_local):
            continue
        return f"{ast.unparse(other.func)}(...)"
    return None


def _reaches(facts: ModuleFacts, other: ast.Call, root: ast.Name, is_local: bool) -> bool:
    """Whether a call has access to the object `root`: as receiver, argument or global."""
    if isinstance(other.func, ast.Attribute):
        if other.func.attr in _HARMLESS or other.func.attr.lstrip("_").startswith(_READING):
            return False
        receiver = other.func.value
        owner = _root(receiver) if pure(receiver) else None
        return owner is not None and owner.id == root.id and receiver is owner
    defined_here = isinstance(other.func, ast.Name) and any(
        function.name == other.func.id for function in facts.structure.functions
    )
    return defined_here and not is_local
