"""Finds the optimizer of a converted state dict.

The legacy loading methods did not need it; their replacement does. It is never guessed: the call names it, or the
result is loaded into it in the same function, or one optimizer is paired with the same model in another FSDP call
there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import takewhile

from fsdp_migrate.code.argument_roles import OPTIMIZER_NAMES, is_called_optimizer
from fsdp_migrate.code.same_optimizer import NoOptimizer, check_usable
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.binding import binds, binds_inside, loops_to
from fsdp_migrate.facts.calls import Bound, is_literal
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.rebinding import changed_between, place_of

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
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


def find_optimizer(facts: ModuleFacts, call: ast.Call, given: Bound | None, model: ast.expr) -> ast.expr:
    """The expression of the optimizer that the result of `call` is for, valid at `call`.

    Raises:
        NoOptimizer: it is not visible, not bound yet, or there are several.
    """
    if given is not None and not is_literal(given.value, None):
        return given.value
    found = list(_receivers(facts, call))
    if not found and not _passed_on(facts, call):
        found = list(_paired(facts, call, model))
        other = next((text for one in found if (text := _other(facts, call, one)) is not None), None)
        if other is not None:
            raise NoOptimizer(f"`{ast.unparse(found[0])}` may be the optimizer, and so may {other}: pass `optim=`")
    distinct = {ast.dump(receiver): receiver for receiver in found}
    if len(distinct) > 1:
        names = " and ".join(f"`{ast.unparse(node)}`" for node in distinct.values())
        raise NoOptimizer(f"several optimizers are possible ({names}): pass `optim=`")
    if not distinct:
        raise NoOptimizer(_not_found(facts, call))
    for optimizer in found:
        check_usable(facts, call, optimizer, model)
    return found[-1]


def loaded_into(facts: ModuleFacts, call: ast.Call) -> tuple[ast.expr, ...]:
    """The object that the result of `call` is loaded into, if that is visible."""
    try:
        return tuple(_receivers(facts, call))
    except NoOptimizer:
        return ()


def _other(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr) -> str | None:
    """Another optimizer in the function of `call`; if `optimizer` is an attribute, one of the same object."""
    if isinstance(optimizer, ast.Subscript):
        return f"another one of `{ast.unparse(optimizer.value)}`"
    known, function = ast.unparse(optimizer), facts.function(call)
    for argument in (node for node in ast.walk(function) if isinstance(node, ast.arg)):
        if is_called_optimizer(ast.Name(argument.arg)) and not f"{known}.".startswith(f"{argument.arg}."):
            return f"`{argument.arg}`"
    if not isinstance(optimizer, ast.Attribute):
        return None
    beside = (node for node in facts.structure.attributes if ast.dump(node.value) == ast.dump(optimizer.value))
    same = (node for node in beside if facts.class_around(node) is facts.class_around(optimizer))
    return next((f"`{ast.unparse(n)}`" for n in same if n.attr != optimizer.attr and is_called_optimizer(n)), None)


def _receivers(facts: ModuleFacts, call: ast.Call) -> Iterator[ast.expr]:
    """The objects that the result of `call` is loaded into: `X` in `X.load_state_dict(result)`."""
    results: list[ast.AST] = [call]
    followed: set[ast.Name] = set()
    while results:
        result = results.pop()
        conversion = _conversion(facts, result)
        if conversion is not None:
            raise NoOptimizer(f"the result goes through `{conversion}` before it is loaded: convert it only once")
        loader = _loader(facts, result)
        if loader is not None:
            if isinstance(result, ast.Name) and _is_another_next_turn(facts, result, loader):
                raise NoOptimizer(
                    "the next iteration of the loop loads the same state into another "
                    f"`{ast.unparse(loader)}`: convert it in the loop"
                )
            yield loader
            continue
        if isinstance(facts.structure.parents[result], ast.NamedExpr):
            results.append(facts.structure.parents[result])
        for target in _assigned(facts, result):
            if target not in followed:
                followed.add(target)
                results.extend(_later_uses(facts, target))


def _assigned(facts: ModuleFacts, value: ast.AST) -> Iterator[ast.Name]:
    """The names that `value` is assigned to by its statement."""
    parent = facts.structure.parents[value]
    targets: list[ast.expr] = []
    if isinstance(parent, ast.NamedExpr) or (isinstance(parent, ast.AnnAssign) and value is parent.value):
        targets = [parent.target]
    elif isinstance(parent, ast.Assign):
        targets = parent.targets
    elif isinstance(parent, (ast.Tuple, ast.List)) and isinstance(outer := facts.structure.parents[parent], ast.Assign):
        targets = [part for target in outer.targets if (part := _part(target, parent, value)) is not None]
    yield from (target for target in targets if isinstance(target, ast.Name))


def _part(target: ast.expr, display: ast.Tuple | ast.List, value: ast.AST) -> ast.expr | None:
    """The target of an unpacking assignment that gets `value`, an element of `display`."""
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != len(display.elts):
        return None
    if any(isinstance(part, ast.Starred) for part in (*target.elts, *display.elts)):
        return None
    return next(part for part, element in zip(target.elts, display.elts) if element is value)


def _is_another_next_turn(facts: ModuleFacts, state: ast.Name, optimizer: ast.expr) -> bool:
    """Whether a loop loads the state again after it has bound another optimizer, or another owner of it."""
    stores = (
        part
        for loop in loops_to(state.id, state, facts.structure.parents)
        for part in ast.walk(loop)
        if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Store)
    )
    return any(f"{ast.unparse(optimizer)}.".startswith(f"{ast.unparse(store)}.") for store in stores)


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
    """The FSDP method that takes `result` as an argument, None if there is none."""
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
    """Uses of the value just assigned to `target` in its scope, until the name is bound again."""
    scope = facts.scope(target)
    after = _end(target, facts)
    bindings = scope.bindings.get(target.id, ())
    limit = min((b.position for b in bindings if b.position > after and not b.conditional), default=None)
    loops = [block for block in facts.blocks_around(target) if isinstance(block, _LOOPS)]
    for use in scope.uses.get(target.id, ()):
        place = (use.lineno, use.col_offset)
        own_statement = limit is not None and facts.statement(use).lineno == limit[0]
        if place > after and not _in_other_arm(facts, target, use):
            if (limit is None or place < limit or own_statement) and not _bound_before(facts, use, after):
                yield use
        elif any(one in facts.blocks_around(use) and not _bound_before(facts, use, place_of(one)) for one in loops):
            yield use


def _bound_before(facts: ModuleFacts, use: ast.Name, since: tuple[int, int]) -> bool:
    """Whether every way from `since` to a use binds the name again."""
    child: ast.AST = facts.statement(use)
    for block in (facts.structure.parents[child], *facts.blocks_around(facts.structure.parents[child])):
        for _, body in ast.iter_fields(block):
            if isinstance(body, list) and isinstance(child, ast.stmt) and child in body:
                before = reversed(body[: body.index(child)])
                if any(binds(one, use.id) for one in takewhile(lambda one: place_of(one) > since, before)):
                    return True
        if isinstance(block, ast.stmt) and place_of(block) > since and binds_inside(block, child, use.id):
            return True
        child = block
    return False


def _in_other_arm(facts: ModuleFacts, node: ast.AST, other: ast.AST) -> bool:
    """Whether an `if` or a `match` only runs one of two places at a time."""
    arms = dict(_arms_around(facts, node))
    return any(arms.get(parent, field) != field for parent, field in _arms_around(facts, other))


def _arms_around(facts: ModuleFacts, node: ast.AST) -> Iterator[tuple[ast.AST, object]]:
    """The `if` and `match` statements around a place, each with the block that contains it."""
    child = node
    for block in facts.blocks_around(node):
        if isinstance(block, ast.If) and child is not block.test:
            yield block, child in block.body
        elif isinstance(block, ast.Match) and child is not block.subject:
            yield block, child
        child = block


def _end(node: ast.AST, facts: ModuleFacts) -> tuple[int, int]:
    statement = facts.statement(node)
    header_end = node if isinstance(statement, (ast.If, ast.While, ast.For, ast.With)) else statement
    return (header_end.end_lineno or 0, header_end.end_col_offset or 0)  # type: ignore[attr-defined]


def _paired(facts: ModuleFacts, call: ast.Call, model: ast.expr) -> Iterator[ast.expr]:
    pairs = facts.memo(_pairs, lambda: _pairs(facts))
    same = ast.dump(facts.fsdp.followed(model))
    known: set[str] = set()
    for pair in pairs.get((facts.function(call), same), ()):
        if pair.call is call or (pair.dumps and known.issuperset(pair.dumps)):
            continue
        if not changed_between(facts, model, place_of(pair.call), place_of(call)):
            if pair.fault is not None:
                raise pair.fault
            known.update(pair.dumps)
            yield from pair.optimizers


class _Pair:
    """A call with a model and its optimizers (named, or loaded into), or why they are not known."""

    def __init__(self, call: ast.Call, optimizers: tuple[ast.expr, ...], fault: NoOptimizer | None = None) -> None:
        self.call = call
        self.optimizers = optimizers
        self.fault = fault

    @cached_property
    def dumps(self) -> frozenset[str]:
        """The optimizers as texts."""
        return frozenset(map(ast.dump, self.optimizers))


def _pairs(facts: ModuleFacts) -> dict[tuple[ast.AST, str], list[_Pair]]:
    """The calls that pair a model with an optimizer, in order, by function and model."""
    found: dict[tuple[ast.AST, str], list[_Pair]] = {}
    for call in facts.structure.calls:
        positions = _PAIRING_METHODS.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
        model = None if positions is None else _argument(call, positions[0], "model")
        if positions is None or model is None or facts.fsdp.receiver(call.func, model) is None:
            continue
        pair = _pair(facts, call, _argument(call, positions[1], "optim"))
        if pair.optimizers or pair.fault is not None:
            found.setdefault((facts.function(call), ast.dump(facts.fsdp.followed(model))), []).append(pair)
    return found


def _pair(facts: ModuleFacts, call: ast.Call, optimizer: ast.expr | None) -> _Pair:
    if optimizer is not None:
        return _Pair(call, (optimizer,) if pure(optimizer) else ())
    try:
        return _Pair(call, tuple(_receivers(facts, call)))
    except NoOptimizer as fault:
        return _Pair(call, (), fault)


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    for candidate in call.keywords:
        if candidate.arg == keyword:
            return candidate.value
    return call.args[position] if position < len(call.args) else None


def _passed_on(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether the result goes to a place where it cannot be followed: a call, a container, an attribute, a closure.

    It may then be for an optimizer that is not visible, whatever else the function does.
    """
    parent = _around_containers(facts, call)
    if isinstance(parent, (ast.Expr, ast.Return)):
        return False
    target = _assigned_name(facts, call)
    if target is None or isinstance(parent, ast.NamedExpr):
        return True
    home = facts.scope(target).lookup(target.id)
    nested = [scope for scope in home.nested() if scope is not home] if home is not None else []
    if any(target.id in scope.uses for scope in nested):
        return True
    return not all(_is_harmless_use(facts, use) for use in _later_uses(facts, target))


def _around_containers(facts: ModuleFacts, node: ast.AST) -> ast.AST:
    """The expression around `node` and the displays that contain it."""
    parent = facts.structure.parents[node]
    while isinstance(parent, (ast.Tuple, ast.List, ast.Dict)):
        parent = facts.structure.parents[parent]
    return parent


def _is_harmless_use(facts: ModuleFacts, use: ast.Name) -> bool:
    parent = _around_containers(facts, use)
    if isinstance(parent, ast.Call):
        return use in parent.args and facts.names.qualified(parent.func) in ("builtins.print", "builtins.len")
    return isinstance(parent, (ast.Return, ast.Expr, ast.FormattedValue))


def _not_found(facts: ModuleFacts, call: ast.Call) -> str:
    function = facts.function(call)
    where = facts.function_name(call)
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        candidates = [argument.arg for argument in arguments if argument.arg.rpartition("_")[2] in OPTIMIZER_NAMES]
        if candidates:
            return (
                f"`{candidates[0]}` is a parameter of {where}, but the result is not loaded into it here: "
                f"pass `optim={candidates[0]}` if it is the optimizer"
            )
    if is_unused(facts, call):
        return (
            f"{where} has no visible optimizer and does not use the result, so nothing is loaded: pass the "
            "optimizer in and load the result into it"
        )
    return f"{where} has no visible optimizer: add a parameter for it and pass it as `optim=`"


def is_unused(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether the result of `call` is dropped, or assigned to a local name that is never read."""
    if isinstance(facts.structure.parents[call], ast.Expr):
        return True
    target = _assigned_name(facts, call)
    if target is None or isinstance(facts.structure.parents[call], ast.NamedExpr):
        return False
    home = facts.scope(target).lookup(target.id)
    return home is not None and home.is_function and not any(scope.uses.get(target.id) for scope in home.nested())
