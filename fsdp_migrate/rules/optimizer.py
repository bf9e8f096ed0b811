"""Finding the optimizer that a converted state dict belongs to.

The legacy loading methods did without it; their replacement needs it. It is never guessed: either the call names
it, or the result is loaded into it in the same function, or exactly one optimizer is paired with the same model in
another FSDP call there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import Bound
from fsdp_migrate.facts.evaluation import pure

# Where the methods that take both have the model and the optimizer: torch 2.x positions, keywords otherwise.
_PAIRING_METHODS: Mapping[str, tuple[int, int]] = {
    "optim_state_dict": (0, 1),
    "optim_state_dict_to_load": (0, 1),
    "full_optim_state_dict": (0, 1),
    "sharded_optim_state_dict": (0, 1),
    "flatten_sharded_optim_state_dict": (1, 2),
    "shard_full_optim_state_dict": (1, 3),
    "scatter_full_optim_state_dict": (1, 3),
    "rekey_optim_state_dict": (2, 4),
}
_OPTIMIZER_NAMES = ("optim", "optimizer", "opt")


class NoOptimizer(Exception):
    """The optimizer is not visible; the message is a reason for the user."""


def find_optimizer(facts: ModuleFacts, call: ast.Call, given: Bound | None, model: ast.expr) -> ast.expr:
    """The expression of the optimizer that the result of `call` is for, valid where `call` stands.

    Raises:
        NoOptimizer: it is not visible, not bound yet, or there are several.
    """
    if given is not None and not (isinstance(given.value, ast.Constant) and given.value.value is None):
        if not pure(given.value):
            raise NoOptimizer(f"the optimizer is `{ast.unparse(given.value)}`: bind it to a name first")
        return given.value
    receivers = list(_receivers(facts, call))
    found = receivers or list(_paired(facts, call, model))
    distinct = {ast.dump(receiver): receiver for receiver in found}
    if len(distinct) > 1:
        names = " and ".join(f"`{ast.unparse(node)}`" for node in distinct.values())
        raise NoOptimizer(f"more than one optimizer could be meant ({names}): pass `optim=`")
    if not distinct:
        raise NoOptimizer(_not_found(facts, call))
    (optimizer,) = distinct.values()
    _check_bound(facts, call, optimizer, model)
    return optimizer


def _receivers(facts: ModuleFacts, call: ast.Call) -> Iterator[ast.expr]:
    """What the result of `call` is loaded into: `X` in `X.load_state_dict(result)`."""
    results: list[ast.AST] = [call]
    followed: set[str] = set()
    while results:
        result = results.pop()
        conversion = _conversion(facts, result)
        if conversion is not None:
            raise NoOptimizer(f"the result goes through `{conversion}` before it is loaded: convert it once")
        loader = _loader(facts, result)
        if loader is not None:
            yield loader
            continue
        if isinstance(facts.structure.parents[result], ast.NamedExpr):
            results.append(facts.structure.parents[result])
        target = _assigned_name(facts, result)
        if target is not None and target.id not in followed:
            followed.add(target.id)
            results.extend(_later_uses(facts, target))


def _loader(facts: ModuleFacts, result: ast.AST) -> ast.expr | None:
    parent = facts.structure.parents[result]
    if isinstance(parent, ast.keyword):
        parent = facts.structure.parents[parent]
    if not isinstance(parent, ast.Call) or not isinstance(parent.func, ast.Attribute):
        return None
    arguments = [*parent.args, *(keyword.value for keyword in parent.keywords)]
    if parent.func.attr != "load_state_dict" or result not in arguments[:1]:
        return None
    return parent.func.value


def _conversion(facts: ModuleFacts, result: ast.AST) -> str | None:
    """The FSDP method that takes `result` as an argument, None when none does."""
    parent = facts.structure.parents[result]
    if isinstance(parent, ast.keyword):
        parent = facts.structure.parents[parent]
    if not isinstance(parent, ast.Call) or not isinstance(parent.func, ast.Attribute) or result is parent.func:
        return None
    method = parent.func.attr
    candidates: list[ast.expr | None] = [
        *parent.args[:3],
        *(k.value for k in parent.keywords if k.arg == "model"),
        None,
    ]
    if method in _PAIRING_METHODS and any(facts.fsdp.receiver(parent.func, c) is not None for c in candidates):
        return method
    return None


def _assigned_name(facts: ModuleFacts, result: ast.AST) -> ast.Name | None:
    """The local name that `result` is assigned to, as `name = result` or `(name := result)`."""
    parent = facts.structure.parents[result]
    if isinstance(parent, ast.NamedExpr):
        return parent.target
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0]
    if isinstance(parent, ast.AnnAssign) and isinstance(parent.target, ast.Name):
        return parent.target
    return None


def _later_uses(facts: ModuleFacts, target: ast.Name) -> Iterator[ast.Name]:
    """Uses of the value just assigned to `target` in its own scope, up to the next time that the name is bound."""
    scope = facts.scope(target)
    after = _end(target, facts)
    rebound = [b.position for b in scope.bindings.get(target.id, ()) if b.position > after and not b.conditional]
    limit = min(rebound, default=None)
    for use in scope.uses.get(target.id, ()):
        place = (use.lineno, use.col_offset)
        own_statement = limit is not None and facts.statement(use).lineno == limit[0]
        if place > after and (limit is None or place < limit or own_statement):
            yield use


def _end(node: ast.AST, facts: ModuleFacts) -> tuple[int, int]:
    statement = facts.statement(node)
    header_end = node if isinstance(statement, (ast.If, ast.While, ast.For, ast.With)) else statement
    return (header_end.end_lineno or 0, header_end.end_col_offset or 0)  # type: ignore[attr-defined]


def _paired(facts: ModuleFacts, call: ast.Call, model: ast.expr) -> Iterator[ast.expr]:
    function = facts.function(call)
    for other in facts.structure.calls:
        if other is call or not isinstance(other.func, ast.Attribute) or facts.function(other) is not function:
            continue
        positions = _PAIRING_METHODS.get(other.func.attr)
        if positions is None:
            continue
        other_model = _argument(other, positions[0], "model")
        if other_model is None or not facts.fsdp.same_object(other_model, model):
            continue
        if facts.fsdp.receiver(other.func, other_model) is None:
            continue
        optimizer = _argument(other, positions[1], "optim")
        if optimizer is None:
            yield from _receivers(facts, other)
        elif pure(optimizer):
            yield optimizer


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    for candidate in call.keywords:
        if candidate.arg == keyword:
            return candidate.value
    return call.args[position] if position < len(call.args) else None


def _check_bound(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr, model: ast.expr) -> None:
    """The optimizer has to be there, and to be the same object, when `call` runs."""
    text = ast.unparse(optimizer)
    if not pure(optimizer):
        raise NoOptimizer(f"the result is loaded into `{text}`: bind it to a name before this call")
    if ast.dump(optimizer) == ast.dump(model):
        raise NoOptimizer(f"the result is loaded into the model `{text}`, which takes no optimizer state")
    if isinstance(optimizer, ast.Attribute):
        _check_attribute(facts, call, optimizer, text)
    root = optimizer
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    assert isinstance(root, ast.Name)
    scope = facts.scope(call)
    home = scope.lookup(root.id)
    if home is None or not home.is_function or home.node is not facts.function(call):
        return
    here = (call.lineno, call.col_offset)
    before = [b for b in home.bindings[root.id] if b.position < here]
    if not before:
        raise NoOptimizer(f"`{text}` is only created after this call: create it before")
    if all(isinstance(b.value, ast.Constant) and b.value.value is None for b in before):
        raise NoOptimizer(f"`{text}` is still None at this call: create it before")
    first, last = sorted((here, _place(optimizer)))
    if any(first < b.position < last for b in home.bindings[root.id]):
        raise NoOptimizer(f"`{text}` is bound anew between this call and where it is used: create it before both")


def _check_attribute(facts: ModuleFacts, call: ast.Call, optimizer: ast.Attribute, text: str) -> None:
    wanted = ast.unparse(optimizer)
    first, last = sorted(((call.lineno, call.col_offset), _place(optimizer)))
    for attribute in facts.structure.attributes:
        place = (attribute.lineno, attribute.col_offset)
        stored = isinstance(attribute.ctx, ast.Store) and facts.function(attribute) is facts.function(call)
        if stored and first < place < last and ast.unparse(attribute) == wanted:
            raise NoOptimizer(f"`{text}` is set between this call and where it is used: set it before both")


def _place(optimizer: ast.expr) -> tuple[int, int]:
    return (optimizer.lineno, optimizer.col_offset)


def _not_found(facts: ModuleFacts, call: ast.Call) -> str:
    function = facts.function(call)
    where = facts.function_name(call)
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        candidates = [argument.arg for argument in arguments if argument.arg.rpartition("_")[2] in _OPTIMIZER_NAMES]
        if candidates:
            return (
                f"`{candidates[0]}` is a parameter of {where} but the result is never loaded into it here: "
                f"if it is the optimizer meant, pass `optim={candidates[0]}`"
            )
    if is_unused(facts, call):
        return (
            f"the optimizer is not visible in {where} and the result is never used, so no optimizer is loaded: "
            "pass the optimizer in and load the result into it"
        )
    return f"the optimizer is not visible in {where}: pass it in and give it as `optim=`"


def is_unused(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether the result of `call` is dropped, or assigned to a local name that nothing reads."""
    if isinstance(facts.structure.parents[call], ast.Expr):
        return True
    target = _assigned_name(facts, call)
    if target is None:
        return False
    home = facts.scope(target).lookup(target.id)
    return home is not None and home.is_function and not any(scope.uses.get(target.id) for scope in home.nested())
