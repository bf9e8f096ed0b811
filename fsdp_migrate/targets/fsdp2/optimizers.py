"""Optimizers of a model's parameters: which work on sharded ones alike, and those built before the parameters change.

FSDP1 with original parameters keeps the objects that an optimizer holds. `fully_shard` replaces every one of them, and
an optimizer from before trains nothing, without an error (measured on torch 2.13: losses stay flat).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.edits import touched
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.class_members import is_super
from fsdp_migrate.facts.objects import Followed, Reference, Value, follow
from fsdp_migrate.facts.project_code import Class, Code, Function, Origin, Sort
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction, Conversion
from fsdp_migrate.targets.fsdp2.gathering import is_gathered
from fsdp_migrate.targets.fsdp2.moving import OPTIMIZERS as _TORCH
from fsdp_migrate.targets.fsdp2.moving import move_behind
from fsdp_migrate.targets.fsdp2.running import Evaluations, comes_first
from fsdp_migrate.targets.fsdp2.said import keeps_parameters
from fsdp_migrate.targets.fsdp2.tensors import PATHS

_BASE = frozenset({"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"})
# They raise on DTensors, or compute over whole tensors (mapping O16; torch 2.13).
_REFUSING = {
    "Adafactor": "computes over whole rows and columns of a parameter",
    "LBFGS": "concatenates parameters",
    "Rprop": "assigns to elements by a mask, which DTensors do not support",
    "Muon": "multiplies whole matrices",
    "SparseAdam": "needs sparse gradients",
}
# Packages whose optimizers write to parameters behind torch's back.
_KERNELS = frozenset({"apex", "bitsandbytes", "deepspeed", "colossalai", "transformer_engine", "fairscale"})
_SHAPES = "parameters are no longer flat: an optimizer that is not known to be elementwise may compute other updates"
_CHOSEN = (
    "the class of the optimizer is chosen at run time: one that is not elementwise fails, or computes other updates"
)
_OWN_FILES = (
    "the state that an optimizer gives by itself is of sharded parameters: each rank reads its own new files only, and "
    "none of FSDP1"
)
_ELEMENTWISE = frozenset(
    """
    add add_ sub sub_ mul mul_ div div_ addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ sqrt sqrt_ rsqrt pow pow_ square
    abs sign sign_ neg neg_ maximum minimum max_ clamp clamp_ clamp_min clamp_max exp log copy_ zero_ fill_ clone detach
    to float half bfloat16 type type_as zeros_like zeros ones_like full_like empty_like item size dim numel is_sparse
    new_zeros new_tensor tensor sign erf tanh sigmoid where
    """.split()
)
_PLAIN = frozenset(
    """
    get setdefault items values keys append extend pop len int float bool zip enumerate range list tuple dict isinstance
    max min super zero_grad step closure backward enable_grad no_grad is_tensor RuntimeError ValueError print warn
    register_state defaults state_dict group is_complex view_as_real is_floating_point is_sparse format
    """.split()
)
_MOST_STEPS = 8
# Seen on torch 2.13: what is made of the root's parameters then is lost, and state of optimizers cannot be had. With
# `reshard()` of every unit before, optimizers that are built and state that is read are as with FSDP1. Changes of
# parameters, and clipping or steps between an evaluation and its backward, are as with DDP then; with FSDP1 they were
# wrong (0.02 after four steps). So a `reshard()` that is put in would give other results than before, and none is.
_EVALUATED = "the model may have run without gradients, and FSDP2 reshards its root in backward only"


def takes_parameters(code: Code, facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call builds an optimizer, or hands parameters up to the class that an optimizer of the project is."""
    if isinstance(call.func, ast.Attribute) and is_super(call.func.value):
        around = facts.class_around(call)
        return around is not None and _is_optimizer(code, Class(facts, around))
    if _is_chosen(facts, call.func):
        return True
    names = _classes(code, facts, call)
    return bool(names) and all(isinstance(one, Class) or _sounds_like_one(one) for one in names)


def convert_optimizer(conversion: Conversion, closure: Closure, facts: ModuleFacts, call: ast.Call) -> None:
    """Say what is to be said of an optimizer that `call` builds: of its class, and of its state."""
    conversion.optimizers.add(call)
    if call in conversion.settled:
        return
    conversion.settled.add(call)
    _look_at_class(conversion, closure, facts, call)
    for one in follow([Value(facts, call)], code=conversion.code).references:
        _look_at_state(conversion, one)


def _look_at_state(conversion: Conversion, one: Reference) -> None:
    """State that an optimizer gives or takes by itself: each rank has its own part of it."""
    parents = one.facts.structure.parents
    attribute = parents[one.node]
    call = parents[attribute]
    is_state = isinstance(attribute, ast.Attribute) and attribute.attr in ("state_dict", "load_state_dict")
    if not is_state or not isinstance(call, ast.Call) or call.func is not attribute or call in conversion.settled:
        return
    around = one.facts.source.span(call)
    edits = conversion.edits.get(one.facts.path, ())
    if not any(claimed.overlaps(around) for edit in edits for claimed in touched(edit)):
        conversion.differs(one.facts, call, _OWN_FILES)


def _is_chosen(facts: ModuleFacts, func: ast.expr) -> bool:
    """Whether a class is `getattr(torch.optim, name)`."""
    made = facts.names.value(func) if isinstance(func, ast.Name) else func
    if not isinstance(made, ast.Call) or len(made.args) != 2 or isinstance(made.args[1], ast.Constant):
        return False
    named = [
        facts.names.qualified(one) for one in (made.func, made.args[0]) if isinstance(one, (ast.Name, ast.Attribute))
    ]
    return named == ["builtins.getattr", "torch.optim"]


def _look_at_class(conversion: Conversion, closure: Closure, facts: ModuleFacts, call: ast.Call) -> None:
    if _is_chosen(facts, call.func):
        conversion.differs(facts, call, _CHOSEN)
    for one in _classes(conversion.code, facts, call):
        if isinstance(one, Class):
            if not is_elementwise(conversion.code, one) and not keeps_parameters(closure):
                conversion.differs(facts, call, _SHAPES)
            continue
        package, last = one.partition(".")[0], _last(one)
        if one.startswith(_TORCH):
            if last in _REFUSING:
                step = "use another optimizer, or keep FSDP1"
                conversion.wall(facts, call, f"`{last}` {_REFUSING[last]}, which fails on sharded parameters", step)
        elif package in _KERNELS:
            step = f"use an optimizer of torch.optim, or check whether {package} supports DTensors"
            conversion.wall(facts, call, f"`{one}` of {package} updates parameters with its own kernels", step)
        elif not keeps_parameters(closure):
            conversion.differs(facts, call, _SHAPES)


def _classes(code: Code, facts: ModuleFacts, call: ast.Call) -> list[Class | str]:
    """The classes that a call may build: those of the project, and full names of others."""
    if isinstance(call.func, ast.Attribute) and is_super(call.func.value):
        around = facts.class_around(call)
        return [] if around is None else [Class(facts, around)]
    found: list[Class | str] = []
    for origin in code.origins(facts, call.func):
        if origin.sort is Sort.CLASS and isinstance(origin.node, ast.ClassDef):
            cls = Class(origin.facts, origin.node)
            if not _is_optimizer(code, cls):
                return []
            found.append(cls)
        elif origin.sort is Sort.ELSEWHERE and origin.name is not None:
            found.append(origin.name)
        else:
            return []
    return found


def _is_optimizer(code: Code, cls: Class) -> bool:
    return any((name or "").startswith(_TORCH) for name in code.bases(cls)[1])


def _sounds_like_one(name: str) -> bool:
    """Whether a class of another package is an optimizer by its full name."""
    return name.startswith(_TORCH) or "optim" in name.lower() or name.rpartition(".")[2].startswith("Adam")


def is_elementwise(code: Code, cls: Class) -> bool:
    """Whether the steps of an optimizer of the project are made of elementwise methods of tensors only."""
    for one in (cls, *code.ancestors(cls)):
        for function in one.node.body:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.name != "__init__":
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                if not all(_is_elementwise_call(call) for call in calls):
                    return False
    own = [name for name in code.bases(cls)[1] if name not in _BASE]
    return all((name or "").startswith(_TORCH) and _last(name) not in _REFUSING for name in own)


def _is_elementwise_call(call: ast.Call) -> bool:
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if isinstance(func, ast.Attribute) and is_super(func.value):
        return True
    return name in _ELEMENTWISE or name in _PLAIN


def _last(name: str | None) -> str:
    return (name or "").rpartition(".")[2]


# --- before the model is wrapped


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
    nodes = ((one.facts, node) for one in methods for node in ast.walk(one.node))
    builds = any(isinstance(node, ast.Call) and takes_parameters(code, where, node) for where, node in nodes)
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


_ON_SHARDED = frozenset({*PATHS, "clip_grad_norm_", "load_state_dict"})


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


_OWN = frozenset({"weight", "bias"})
_LOOKING = frozenset({"torch", "builtins", "math", "logging"})
_MEASURING = "torch.nn.utils."
_KEEPING = frozenset({"append", "add", "extend", "insert", "setdefault", "update", "add_param_group"})
_NEW = "`fully_shard` makes new ones"
_OF_TENSORS = frozenset({"requires_grad", "data", "grad"})
_REPLACED = "the optimizer holds parameters from before sharding, which `fully_shard` replaces"
_STEP = "get them after the model is wrapped"


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


# --- of which it is not seen what they hold


def check_optimizers(conversion: Conversion, closure: Closure) -> None:
    """There is a wall where an optimizer steps beside a model, and none is seen to hold the parameters of that."""
    if conversion.optimizers or conversion.walls:
        return
    functions = {one.facts.function(one.node): one.facts for one in closure.references}
    for function, facts in functions.items():
        for call in facts.structure.method_calls.get("step", ()):
            stepped = call.func.value if isinstance(call.func, ast.Attribute) else None
            if facts.function(call) is not function or stepped is None or not is_called_optimizer(stepped):
                continue
            if not all(_holds_visibly(one) for one in conversion.code.origins(facts, stepped)):
                step = "build it from `model.parameters()` after the model is wrapped"
                conversion.wall(facts, call, f"it is not seen which parameters `{ast.unparse(stepped)}` holds", step)
                return


def _holds_visibly(optimizer: Origin) -> bool:
    """Whether an optimizer is built from the parameters of a model, in so many words."""
    call = optimizer.node if optimizer.sort is Sort.ELSEWHERE else None
    given = [*call.args, *(one.value for one in call.keywords)] if isinstance(call, ast.Call) else []
    parts = (part for one in given for part in ast.walk(one))
    return any(isinstance(part, ast.Attribute) and part.attr in PATHS for part in parts)
