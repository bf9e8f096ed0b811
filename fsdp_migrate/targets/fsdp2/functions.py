"""What becomes of a model that is given to a function which is not of the project."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping

from fsdp_migrate.facts.looked_up_names import look_up
from fsdp_migrate.facts.objects import EACH
from fsdp_migrate.facts.project_code import Origin, Sort
from fsdp_migrate.targets.fsdp2.accumulation import convert_looked_up
from fsdp_migrate.targets.fsdp2.gathering import convert_gathering
from fsdp_migrate.targets.fsdp2.guards import also_ddp
from fsdp_migrate.targets.fsdp2.instances import ask_instead, convert_isinstance
from fsdp_migrate.targets.fsdp2.norms import convert_unbound_clipping
from fsdp_migrate.targets.fsdp2.parts import may_be_parameter
from fsdp_migrate.targets.fsdp2.units import convert_units, see_all
from fsdp_migrate.targets.fsdp2.unwrapping import convert_given_back
from fsdp_migrate.targets.fsdp2.use import Use

Handler = Callable[[Use, ast.Call], None]


def convert_argument(use: Use, call: ast.Call) -> None:
    """Convert the use of a model as an argument of `call`."""
    named = use.facts.names.qualified(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    handler = FUNCTIONS.get(named or "")
    if isinstance(call.func, ast.Attribute) and use.facts.fsdp.is_class(call.func.value):
        handler = STATIC.get(call.func.attr, _static)
    own = {one.node for one in use.closure.references if one.facts is use.facts}
    if isinstance(call.func, ast.Attribute) and call.func.value in own:
        return  # a method of a model, which is told there
    if handler is not None:
        handler(use, call)
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGING and not _is_of_torch(named):
        return
    else:
        _stop_at(use, call, named)


def _is_of_torch(named: str | None) -> bool:
    return named is not None and named.startswith("torch.")


def _stop_at(use: Use, call: ast.Call, named: str | None) -> None:
    package = (named or "").lstrip(".").split(".")[0]
    if package.isidentifier() and package != "torch" and package not in sys.stdlib_module_names:
        use.wall(
            f"`{named}` gets the model, and is not among the files",
            f"plan with its files too if they are yours; else check how {package} supports FSDP2, or use torch's own",
        )
    else:
        use.wall(f"`{ast.unparse(call.func)}` gets the model", "check whether it works with FSDP2")


def _leave(use: Use, call: ast.Call) -> None:
    """The function does the same with a model of FSDP2."""


def _stop(reason: str, step: str) -> Handler:
    def handler(use: Use, call: ast.Call) -> None:
        use.wall(f"`{ast.unparse(call.func)}` {reason}", step, call)

    return handler


def _has(use: Use, call: ast.Call) -> None:
    """`hasattr(model, "name")`."""
    name = _string(call)
    if name in _ONLY_FSDP or name == "no_sync":
        # The module inside has no such member, in FSDP2 neither.
        if not use.inside and not (name == "no_sync" and also_ddp(use, name)):
            ask_instead(use, call)
    elif name is None or name in _OF_EITHER - {"module"}:  # a model without it needs no unwrapping
        _look_up(use, call, name)


def _get(use: Use, call: ast.Call) -> None:
    """`getattr(model, "name", default)`."""
    found = look_up(call)
    name = None if found is None else found.name
    if name == "no_sync":
        if not use.inside:
            convert_looked_up(use, call)
    elif name in ("module", "_fsdp_wrapped_module") and len(call.args) == _WITH_DEFAULT:
        convert_given_back(use, call)
    elif name is None or name in _OF_EITHER:
        _look_up(use, call, name)
    elif not _has_plain_default(call) or may_be_parameter(use, name):
        see_all(use, call)


_WITH_DEFAULT = 3


def _has_plain_default(call: ast.Call) -> bool:
    """Whether `getattr` has a text, a whole number or a truth value instead, in whose place no module stands."""
    default = call.args[2] if len(call.args) == _WITH_DEFAULT else None
    return isinstance(default, ast.Constant) and isinstance(default.value, (str, int))


def _look_up(use: Use, call: ast.Call, name: str | None) -> None:
    function = ast.unparse(call.func)
    if name is None:
        use.wall(f"`{function}` looks for a member of `{use.text}` whose name is not written here", "write it out")
    else:
        use.wall(f"`{function}` looks for `{name}` of `{use.text}`", f"write `{use.text}.{name}`, or ask a setting")


def _string(call: ast.Call) -> str | None:
    second = call.args[1] if len(call.args) > 1 else None
    return second.value if isinstance(second, ast.Constant) and isinstance(second.value, str) else None


# Members that FSDP1's class has, and no other module.
_ONLY_FSDP = frozenset({"_fsdp_wrapped_module", "clip_grad_norm_", "summon_full_params", "_handle", "_handles"})
# Those that are not read by a name in a string: they are told apart where they are written out.
_OF_EITHER = _ONLY_FSDP | frozenset(
    """
    module _fsdp_state sharding_strategy mixed_precision process_group params check_is_root register_comm_hook
    parameters named_parameters modules named_modules state_dict load_state_dict forward apply generate unshard reshard
    set_requires_gradient_sync set_is_last_backward set_reshard_after_backward
    """.split()
)
_LOGGING = frozenset("debug info warning error critical exception print".split())

_static = _stop("is a method of FSDP1's class that FSDP2 does not have", "remove it")

# Methods of FSDP1's class that get the model as an argument.
STATIC: Mapping[str, Handler] = {
    "clip_grad_norm_": convert_unbound_clipping,
    "fsdp_modules": convert_units,
    "summon_full_params": convert_gathering,
}


def see_class(use: Use, asking: ast.expr) -> None:
    """`type(model)` and `model.__class__`, which `fully_shard` changes: they may be shown."""
    parents = use.facts.structure.parents
    shown: ast.AST = parents[asking]
    if isinstance(shown, ast.Attribute) and shown.attr in ("__name__", "__qualname__"):
        shown = parents[shown]
    named = shown.func if isinstance(shown, ast.Call) else None
    is_print = isinstance(named, ast.Name) and use.facts.names.qualified(named) == "builtins.print"
    if not (isinstance(shown, ast.FormattedValue) or is_print):
        what = "`type`" if isinstance(asking, ast.Call) else f"`{ast.unparse(asking)}`"
        use.wall(f"{what} asks for the class of a model, which `fully_shard` changes", "use `isinstance`", asking)


def _checkpoint(use: Use, call: ast.Call) -> None:
    """Checkpointing of modules that a function chooses, which may ask for their class."""
    given = [*call.args[1:], *(one.value for one in call.keywords)]
    functions = {one.node: one for value in given for one in _functions(use, value)}
    for origin in functions.values():
        for node in ast.walk(origin.node):
            is_type = isinstance(node, ast.Call) and origin.facts.names.qualified(node.func) == "builtins.type"
            if is_type or (isinstance(node, ast.Attribute) and node.attr == "__class__"):
                told = f"`{ast.unparse(node)}` asks for the class of a module, which `fully_shard` changes"
                use.conversion.wall(origin.facts, node, told, "use `isinstance`")


def _functions(use: Use, value: ast.expr) -> list[Origin]:
    """The functions of the project that an argument may be, alone or in a `partial`."""
    parts = [value, *value.args, *(one.value for one in value.keywords)] if isinstance(value, ast.Call) else [value]
    origins = (one for part in parts for one in use.conversion.code.origins(use.facts, part))
    return [one for one in origins if one.sort is Sort.FUNCTION]


def _compile(use: Use, call: ast.Call) -> None:
    """A compiled model, whose state dict FSDP1 gave with a prefix that the new functions leave out."""
    if use.conversion.settled:
        use.differs(_KEYS, call)


_KEYS = "state dicts of the compiled model have keys without `_orig_mod.`; older files have it"


def _iterate(use: Use, call: ast.Call) -> None:
    """A function that gives the modules in a container one by one."""
    see_all(use, use.node, EACH)


_STATE_DICT = "torch.distributed.checkpoint.state_dict"
_NEW = """
    get_model_state_dict set_model_state_dict get_optimizer_state_dict set_optimizer_state_dict get_state_dict
    set_state_dict
""".split()
_CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
_WRAPPERS = """
    apply_activation_checkpointing apply_activation_checkpointing_wrapper offload_wrapper checkpoint_wrapper
""".split()
_ITERATING = [f"builtins.{name}" for name in "enumerate zip list tuple set frozenset reversed iter next".split()]

_COPY = _stop("copies a sharded model, which fails", "build the copy before sharding, and shard it too")
_PICKLED = _stop("pickles a sharded model", "save a full state dict")
_WRAPPED = _stop("wraps a sharded model", "use a 2-D mesh: FSDP2 replicates and shards by itself")

FUNCTIONS: Mapping[str, Handler] = {
    "builtins.isinstance": convert_isinstance,
    "builtins.hasattr": _has,
    "builtins.getattr": _get,
    "builtins.setattr": _stop("sets a member of a model after it is wrapped", "set it on the module before"),
    "builtins.type": see_class,
    **dict.fromkeys(("builtins.print", "builtins.len", "builtins.id", "builtins.str", "builtins.repr"), _leave),
    **dict.fromkeys(_ITERATING, _iterate),
    "typing.cast": convert_given_back,
    "torch.compile": _compile,
    **dict.fromkeys((f"{_STATE_DICT}.{name}" for name in _NEW), _leave),
    "copy.deepcopy": _COPY,
    "copy.copy": _COPY,
    "torch.optim.swa_utils.AveragedModel": _COPY,
    "torch.save": _PICKLED,
    "pickle.dump": _PICKLED,
    "pickle.dumps": _PICKLED,
    "torch.nn.parallel.DistributedDataParallel": _WRAPPED,
    "torch.nn.parallel.distributed.DistributedDataParallel": _WRAPPED,
    "torch.nn.DataParallel": _WRAPPED,
    **dict.fromkeys((f"{_CHECKPOINTING}.{name}" for name in _WRAPPERS), _checkpoint),
}
