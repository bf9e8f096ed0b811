"""What is made of a model's parameters before they change: optimizers above all.

FSDP1 with original parameters keeps the objects that an optimizer holds. `fully_shard` replaces every one of them, and
an optimizer from before trains nothing, without an error (measured on torch 2.13: losses stay flat).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.objects import Followed, Reference, Value, follow
from fsdp_migrate.facts.project_code import Class, Code, Function, Sort
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion
from fsdp_migrate.targets.fsdp2.gathering import is_gathered
from fsdp_migrate.targets.fsdp2.moving import move_behind
from fsdp_migrate.targets.fsdp2.optimizers import convert_optimizer, takes_parameters
from fsdp_migrate.targets.fsdp2.running import Evaluations, comes_first
from fsdp_migrate.targets.fsdp2.said import keeps_parameters
from fsdp_migrate.targets.fsdp2.tensors import PATHS

_MOST_STEPS = 8
# Seen on torch 2.13: what is made of the root's parameters then is lost, and state of optimizers cannot be had. With
# `reshard()` of every unit before, optimizers that are built and state that is read are as with FSDP1. Changes of
# parameters, and clipping or steps between an evaluation and its backward, are as with DDP then; with FSDP1 they were
# wrong (0.02 after four steps). So a `reshard()` that is put in would give other results than before, and none is.
_EVALUATED = "the model may have run without gradients, and FSDP2 reshards its root in backward only"
_ON_SHARDED = frozenset({*PATHS, "clip_grad_norm_", "load_state_dict"})
_OWN = frozenset({"weight", "bias"})
_LOOKING = frozenset({"torch", "builtins", "math", "logging"})
_MEASURING = "torch.nn.utils."
_KEEPING = frozenset({"append", "add", "extend", "insert", "setdefault", "update", "add_param_group"})
_NEW = "`fully_shard` makes new ones"
_OF_TENSORS = frozenset({"requires_grad", "data", "grad"})
_REPLACED = "the optimizer holds parameters from before sharding, which `fully_shard` replaces"
_STEP = "get them after the model is wrapped"


def convert_early_uses(conversion: Conversion, closure: Closure) -> None:
    """Look at what is made of parameters before they are replaced."""
    known = {one.node for one in (*closure.references, *closure.passed)}
    for construction in closure.constructions:
        module = _module(construction)
        if module is None:
            continue
        namesakes = [one for one in _namesakes(conversion.code, construction.facts, module) if one.node not in known]
        values = [*_values(conversion.code, construction.facts, module, _MOST_STEPS)]
        values += [Value(one.facts, one.node) for one in namesakes if one.node is not module]
        plain = follow(values, code=conversion.code, others=False)
        for one in {one.node: one for one in (*namesakes, *plain.references)}.values():
            if one.node not in known and one.node is not module:
                _look_at(conversion, closure, construction, one)
    evaluations = Evaluations(conversion.code, closure)
    for one in closure.references:
        _look_at_order(conversion, closure, one)
        _look_at_evaluation(conversion, evaluations, one)


def _namesakes(code: Code, facts: ModuleFacts, module: ast.expr) -> Iterator[Reference]:
    """Where a module is read under the name that it has where it is wrapped."""
    home = facts.scope(module).lookup(module.id) if isinstance(module, ast.Name) else None
    if isinstance(module, ast.Name) and home is not None:
        yield from (Reference(facts, load) for load in code.loads(home, module.id))


def _module(construction: Construction) -> ast.expr | None:
    """What a construction wraps."""
    call = construction.call
    given = next((one.value for one in call.keywords if one.arg == "module"), None)
    return given if given is not None else next(iter(call.args), None)


def _values(
    code: Code, facts: ModuleFacts, node: ast.expr, steps: int, seen: dict[ast.expr, int] | None = None
) -> Iterator[Value]:
    """The expressions that make what is read here: through names, attributes, and functions that return it."""
    seen = {} if seen is None else seen
    if steps <= seen.get(node, 0):
        return
    seen[node] = steps
    if isinstance(node, ast.Name):
        for binding in code.bindings(facts, node):
            if isinstance(binding.node, ast.arg):
                function = Function(facts, facts.structure.parents[facts.structure.parents[binding.node]])  # type: ignore[arg-type]
                for site in code.callers(function).sites:
                    given = code.argument(site, function, binding.node)
                    if given is not None:
                        yield from _values(code, given.facts, given.node, steps - 1, seen)
            elif binding.value is not None and binding.value is not node:
                yield from _values(code, facts, binding.value, steps - 1, seen)
            else:
                for value in code.unpacked_to(facts, binding.node) or ():
                    yield from _values(code, value.facts, value.node, steps - 1, seen)
        return
    yield Value(facts, node)
    if isinstance(node, ast.Attribute):
        for owner in code.origins(facts, node.value):
            if owner.sort is Sort.INSTANCE and isinstance(owner.node, ast.ClassDef):
                for store in code.stores(Class(owner.facts, owner.node), node.attr):
                    yield from _values(code, store.facts, store.node, steps - 1, seen)
    elif isinstance(node, ast.Call):
        for callee in code.origins(facts, node.func):
            if callee.sort is Sort.FUNCTION:
                function = Function(callee.facts, callee.node)  # type: ignore[arg-type]
                for returned in code.returned(function):
                    yield from _values(code, callee.facts, returned, steps - 1, seen)


def _look_at(conversion: Conversion, closure: Closure, construction: Construction, one: Reference) -> None:
    """What a use of the module, under a name that the model does not have, makes of its parameters."""
    facts, parents = one.facts, one.facts.structure.parents
    member: ast.expr = one.node
    while isinstance(parent := parents[member], (ast.Attribute, ast.Subscript)) and parent.value is member:
        member = parent
    call = parents[member]
    if not isinstance(member, ast.Attribute):
        return
    if not isinstance(call, ast.Call) or call.func is not member:
        if member.attr in _OWN and not _is_behind(construction, facts, member):
            _look_at_tensor(conversion, construction, facts, member)
        return
    path = PATHS.get(member.attr)
    if path is None:
        if not _is_behind(construction, facts, call):
            _look_at_method(conversion, facts, call)
        return
    if _is_behind(construction, facts, call):
        for built, where in _built(conversion.code, follow([Value(facts, call)], code=conversion.code, path=path)):
            convert_optimizer(conversion, closure, where, built)
        return
    followed = follow([Value(facts, call)], code=conversion.code, path=path)
    built_by = _built(conversion.code, followed)
    for built, where in built_by:
        convert_optimizer(conversion, closure, where, built)
        is_seen = where is facts and where.function(built) is facts.function(call)
        is_own = call in ast.walk(built) or facts.function(call) is not facts.function(construction.call)
        can_move = is_seen and is_own and keeps_parameters(closure)
        if not can_move or not move_behind(conversion, construction, where, built):
            conversion.wall(where, built, _REPLACED, _STEP)
    if not built_by:
        _look_at_rest(conversion, construction, followed)


def _look_at_tensor(conversion: Conversion, construction: Construction, facts: ModuleFacts, tensor: ast.expr) -> None:
    """A parameter from before that is read as an attribute, and used under a name of its own."""
    followed = follow([Value(facts, tensor)], code=conversion.code)
    for built, where in _built(conversion.code, followed):
        conversion.wall(where, built, _REPLACED, _STEP)
    for one in followed.references:
        if one.node is not tensor and _is_behind(construction, one.facts, one.node):
            conversion.wall(one.facts, one.node, f"a parameter from before sharding is used here: {_NEW}", _STEP)


def _look_at_method(conversion: Conversion, facts: ModuleFacts, call: ast.Call) -> None:
    """A method of the module, called before, that builds an optimizer of its parameters or gives them to one."""
    code = conversion.code
    parent = facts.structure.parents[call]
    methods = [one for one in code.origins(facts, call.func) if one.sort is Sort.FUNCTION]
    builds = any(takes_parameters(code, one.facts, made) for one in methods for made in one.facts.calls_in(one.node))
    built = _built(code, follow([Value(facts, call)], code=code)) if methods else []
    is_given = isinstance(parent, ast.Call) and bool(methods) and takes_parameters(code, facts, parent)
    if builds or built or is_given:
        conversion.wall(facts, call, _REPLACED, _STEP)


def _look_at_order(conversion: Conversion, closure: Closure, one: Reference) -> None:
    """An optimizer of what may still be the plain module there: it has to be built after the model is wrapped."""
    facts, parents = one.facts, one.facts.structure.parents
    attribute = parents[one.node]
    path = PATHS.get(attribute.attr) if isinstance(attribute, ast.Attribute) else None
    call = parents[attribute]
    if path is None or not isinstance(call, ast.Call) or call.func is not attribute:
        return
    if all(is_literal(other.node, None) for other in one.others) or not keeps_parameters(closure):
        return
    code = conversion.code
    built = _built(code, follow([Value(facts, call)], code=code, path=path))
    if built and not any(comes_first(code, closure, made, facts, call) for made in closure.constructions):
        step = "build the optimizer in the function that wraps the model, behind that"
        conversion.wall(facts, call, f"`{ast.unparse(one.node)}` may not be wrapped yet here", step)


def _look_at_evaluation(conversion: Conversion, evaluations: Evaluations, one: Reference) -> None:
    """What needs sharded parameters, where those of the root may be gathered still."""
    facts, parents = one.facts, one.facts.structure.parents
    member = parents[one.node]
    call = parents.get(member) if isinstance(member, (ast.Attribute, ast.keyword)) else member
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    is_method = call.func is member and call.func.attr in _ON_SHARDED
    is_state = call.func is not member and "optim_state_dict" in call.func.attr
    is_apart = is_gathered(facts, one.node, one.node)
    if (is_method or is_state) and not is_apart and evaluations.before(facts, call):
        step = "do that before the model runs without gradients, or behind `state_dict` of the model"
        conversion.wall(facts, call, f"`{ast.unparse(call.func)}` gets gathered parameters: {_EVALUATED}", step)


def _look_at_rest(conversion: Conversion, construction: Construction, followed: Followed) -> None:
    """Parameters from before that are kept, told apart by `id`, or carry attributes, which new ones lack."""
    for lost in followed.escapes:
        if _is_measured(lost.facts, lost.node):
            continue
        told = f"parameters from before sharding cannot be followed: {lost.reason}; {_NEW}"
        conversion.wall(lost.facts, lost.node, told, _STEP)
    for facts, node in ((one.facts, one.node) for one in followed.references):
        parent = facts.structure.parents.get(node)
        if _is_behind(construction, facts, node):
            conversion.wall(facts, node, f"parameters from before sharding are used here: {_NEW}", _STEP)
        elif isinstance(parent, ast.Call) and facts.names.qualified(parent.func) == "builtins.id":
            conversion.wall(facts, parent, f"`id` identifies parameters that are replaced: {_NEW}", _STEP)
        elif isinstance(parent, ast.Call) and parent.func is not node and _may_keep(facts, parent):
            told = f"`{ast.unparse(parent.func)}` may keep parameters from before sharding: {_NEW}"
            conversion.wall(facts, parent, told, _STEP)
        elif isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Store) and parent.attr not in _OF_TENSORS:
            told = f"`{ast.unparse(parent)}` is lost: {_NEW}"
            conversion.wall(facts, parent, told, "set it after the model is wrapped")


def _is_measured(facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether parameters are given to a function of `torch.nn.utils`, which keeps none: a norm, a clip."""
    call = facts.structure.parents.get(node)
    return isinstance(call, ast.Call) and (facts.names.qualified(call.func) or "").startswith(_MEASURING)


def _may_keep(facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call may put what it is given where it stays: a method of a collection, or another package's code."""
    package, dot, _ = (facts.names.qualified(call.func) or "").partition(".")
    is_foreign = bool(dot) and package not in _LOOKING
    return is_foreign or (isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING)


def _built(code: Code, followed: Followed) -> list[tuple[ast.Call, ModuleFacts]]:
    """The optimizers that get some parameters."""
    found: dict[ast.Call, ModuleFacts] = {}
    nodes = [(one.facts, one.node) for one in followed.references]
    nodes += [(one.facts, one.node) for one in followed.escapes if isinstance(one.node, ast.expr)]
    for facts, node in nodes:
        parent = facts.structure.parents.get(node)
        if isinstance(parent, ast.keyword):
            parent = facts.structure.parents[parent]
        if isinstance(parent, ast.Call) and parent.func is not node and takes_parameters(code, facts, parent):
            found[parent] = facts
    return list(found.items())


def _is_behind(construction: Construction, facts: ModuleFacts, node: ast.AST) -> bool:
    """Whether a place certainly runs after the construction: in its function, behind it."""
    own = facts is construction.facts and facts.function(node) is facts.function(construction.call)
    return own and place_of(node) > place_of(construction.call)
