"""Optimizers of a model's parameters: which work on sharded ones alike, and what is seen of them."""

from __future__ import annotations

import ast

from fsdp_migrate.code.argument_roles import is_called_optimizer
from fsdp_migrate.edits import touched
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.class_members import is_super
from fsdp_migrate.facts.objects import Reference, Value, follow
from fsdp_migrate.facts.project_code import Class, Code, Origin, Sort
from fsdp_migrate.targets.fsdp2.conversion import Closure, Conversion
from fsdp_migrate.targets.fsdp2.moving import OPTIMIZERS as _TORCH
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


def takes_parameters(code: Code, facts: ModuleFacts, call: ast.Call) -> bool:
    """Whether a call builds an optimizer, or hands parameters up to the class that an optimizer of the project is."""
    if isinstance(call.func, ast.Attribute) and is_super(call.func.value):
        around = facts.class_around(call)
        return around is not None and is_optimizer(code, Class(facts, around))
    if _is_chosen(facts, call.func):
        return True
    names = _classes(code, facts, call)
    return bool(names) and all(isinstance(one, Class) or _sounds_like_one(one) for one in names)


def convert_optimizer(conversion: Conversion, closure: Closure, facts: ModuleFacts, call: ast.Call) -> None:
    """Say what is to be said of an optimizer that `call` builds: of its class, and of its state."""
    if call in conversion.optimizers:
        return
    conversion.optimizers[call] = follow([Value(facts, call)], code=conversion.code).references
    _look_at_class(conversion, closure, facts, call)
    for one in conversion.optimizers[call]:
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
            if not is_optimizer(code, cls):
                return []
            found.append(cls)
        elif origin.sort is Sort.ELSEWHERE and origin.name is not None:
            found.append(origin.name)
        else:
            return []
    return found


def is_optimizer(code: Code, cls: Class) -> bool:
    """Whether a class of the project is an optimizer."""
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
