"""What becomes of each member of a model: the table, and the handlers of the short rows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.objects import Reference
from fsdp_migrate.targets.fsdp2.accumulation import convert_no_sync
from fsdp_migrate.targets.fsdp2.file_helpers import from_generated
from fsdp_migrate.targets.fsdp2.functions import see_class
from fsdp_migrate.targets.fsdp2.generated import GROUP
from fsdp_migrate.targets.fsdp2.guards import also_ddp
from fsdp_migrate.targets.fsdp2.norms import convert_clipping
from fsdp_migrate.targets.fsdp2.parameters import convert_own_parameters, convert_parameters, look_at, see_names
from fsdp_migrate.targets.fsdp2.said import gives_no_precision, is_sharded_on_all_ranks, offloads
from fsdp_migrate.targets.fsdp2.unfreezing import check_unfreezing
from fsdp_migrate.targets.fsdp2.units import convert_modules, see_all
from fsdp_migrate.targets.fsdp2.unwrapping import convert_unwrapping
from fsdp_migrate.targets.fsdp2.use import COMPILED, Member, Use

Handler = Callable[[Use, Member], None]


def leave(use: Use, member: Member) -> None:
    """The member is the same in FSDP2."""


def _stop(reason: str, step: str) -> Handler:
    def handler(use: Use, member: Member) -> None:
        use.wall(f"`{use.text}.{member.node.attr}` {reason}", step, member.node)

    return handler


def _forward(use: Use, member: Member) -> None:
    """`model.forward(x)` of FSDP1 gathers the parameters; in FSDP2 the hooks do that, which only a call runs."""
    if isinstance(use.facts.structure.parents[member.node], ast.Expr):
        return
    if member.call is None:
        use.wall(
            f"`{use.text}.forward` is passed on: FSDP2 gathers parameters only where the model is called", "call it"
        )
        return
    use.put(member.end, use.facts.source.span(member.node).end, "")


def _see_class(use: Use, member: Member) -> None:
    see_class(use, member.node)


def _uncompile(use: Use, member: Member) -> None:
    """`compiled._orig_mod` is the model."""
    followed = use.follow(member.node)
    for one in followed.references:
        use.see(use.at(one))
    use.lose(f"the model in `{use.text}`", followed.escapes)


def _move(use: Use, member: Member) -> None:
    """Moving a sharded model to the device that it is on already."""
    call = member.call
    if offloads(use.closure):
        use.wall(f"`{ast.unparse(member.node)}` moves parameters that are kept on the CPU", "remove it", member.node)
        return
    arguments = [] if call is None else [*call.args, *(one.value for one in call.keywords)]
    if call is None or any(_may_be_dtype(use, one) for one in arguments):
        _cast(use, member)


def _may_be_dtype(use: Use, node: ast.expr) -> bool:
    """Whether an argument of `to` may be a dtype: not a device in so many words."""
    if isinstance(node, ast.Constant):
        return False
    if isinstance(node, (ast.Name, ast.Attribute)):
        last = (node.id if isinstance(node, ast.Name) else node.attr).lower()
        return not any(word in last for word in ("device", "rank", "gpu"))
    named = (
        isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Name, ast.Attribute))
        and use.facts.names.qualified(node.func)
    )
    return named not in ("torch.device", "torch.cuda.current_device", "builtins.int")


def _cast(use: Use, member: Member) -> None:
    """A cast of all parameters: the same in both (measured), unless mixed precision has dtypes of its own."""
    if member.call is None or not gives_no_precision(use.closure):
        step = "cast the module before it is wrapped"
        use.wall(f"`{ast.unparse(member.node)}` casts parameters of a model in mixed precision", step, member.node)


def _apply(use: Use, member: Member) -> None:
    step = "initialise the module before it is sharded, or write a loop over its modules"
    use.wall(f"`{use.text}.apply` gathers parameters in FSDP1, and gives sharded ones in FSDP2", step, member.node)


def _unfreeze(use: Use, member: Member) -> None:
    """`requires_grad_`: what was frozen when it first ran cannot be unfrozen under `param_dtype`."""
    call = member.call
    value = next(iter([*call.args, *(one.value for one in call.keywords)]), None) if call is not None else None
    if call is None or not is_literal(value, False):
        check_unfreezing(use, member.node)


def _buffers(use: Use, member: Member) -> None:
    if member.call is not None:
        see_names(use, member.call)


def _static(use: Use, member: Member) -> None:
    """A static method of FSDP1's class that is called on a model."""
    first = member.call.args[0] if member.call is not None and member.call.args else None
    if first not in use.conversion.settled:
        use.wall(f"`{ast.unparse(member.node)}` is called on the model", f"call `FSDP.{member.node.attr}`", member.node)


def _group(use: Use, member: Member) -> None:
    """`model.process_group`: the ranks that share the parameters."""
    if also_ddp(use, member.node.attr):
        return
    span = use.facts.source.span(member.node)
    if is_sharded_on_all_ranks(use.closure):
        group = use.spelled("torch.distributed.group")
        if group is not None:
            use.put(span.start, span.end, f"{group}.WORLD")
    elif (function := from_generated(use, GROUP)) is not None:
        use.put(span.start, span.end, f"{function}({use.written})")


def _inner(use: Use, member: Member) -> None:
    """`model.get_submodule(name)`."""
    see_all(use, member.whole)


def _parameter(use: Use, member: Member) -> None:
    """`model.get_parameter(name)`."""
    look_at(use, Reference(use.facts, member.whole))


_STATE = _stop(
    "gives or takes sharded tensors in FSDP2", "use the functions of `torch.distributed.checkpoint.state_dict`"
)
_CHANGES = _stop("changes a model that is sharded", "do it before the model is wrapped")
_PRIVATE = _stop("is a part of FSDP1 that FSDP2 does not have", "remove it")

# Members of nn.Module that do the same, or whose results are looked at on their own.
_ALIKE = """
    train eval zero_grad training buffers get_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook extra_repr __call__ __len__ compile
""".split()
_CHANGING = """
    add_module register_module register_parameter register_buffer set_submodule to_empty share_memory xpu ipu mtia
    register_backward_hook _apply _buffers _modules __dict__ __setattr__
""".split()
_STATES = """
    state_dict load_state_dict get_extra_state set_extra_state register_state_dict_pre_hook _register_state_dict_hook
    register_state_dict_post_hook register_load_state_dict_pre_hook register_load_state_dict_post_hook
    _register_load_state_dict_pre_hook
""".split()
_STATICS = """
    fsdp_modules summon_full_params state_dict_type set_state_dict_type get_state_dict_type optim_state_dict
    optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict scatter_full_optim_state_dict
    shard_full_optim_state_dict flatten_sharded_optim_state_dict rekey_optim_state_dict
""".split()

_PRIVATES = """
    check_is_root rank world_size sharding_strategy mixed_precision compute_device cpu_offload
    backward_prefetch forward_prefetch limit_all_gathers params numel_padded_per_param
    training_state _handle _handles _all_handles _flat_param _fsdp_state _state_dict_type _is_root _has_params
    _use_orig_params _ignored_modules _fully_sharded_module_to_handle _all_fsdp_states _communication_hook
    _gradient_predivide_factor _gradient_postdivide_factor _lazy_init _reset_lazy_init _unshard _reshard
    _unshard_params _mixed_precision_enabled_for_params _zero_scalar _exec_order_data _device_handle
""".split()

_WRAPPED = _stop("gives the wrapped module in FSDP1, and the modules in it in FSDP2", "use `modules()`")

MEMBERS: Mapping[str, Handler] = {
    "__class__": _see_class,
    COMPILED: _uncompile,
    "module": convert_unwrapping,
    "_fsdp_wrapped_module": convert_unwrapping,
    **dict.fromkeys(("parameters", "named_parameters"), convert_parameters),
    "_parameters": convert_own_parameters,
    **dict.fromkeys(("modules", "named_modules"), convert_modules),
    **dict.fromkeys(("children", "named_children"), _WRAPPED),
    "clip_grad_norm_": convert_clipping,
    "process_group": _group,
    "no_sync": convert_no_sync,
    "forward": _forward,
    "apply": _apply,
    "to": _move,
    "cuda": _move,
    "cpu": _stop(
        "moves parameters that are sharded away from where they are trained", "save a full state dict instead"
    ),
    **dict.fromkeys(("half", "float", "double", "bfloat16", "type"), _cast),
    "register_comm_hook": _stop(
        "changes how gradients are communicated, for which FSDP2 has no hook",
        "set `reduce_dtype` in `mixed_precision` instead of a hook that compresses; otherwise keep FSDP1",
    ),
    "requires_grad_": _unfreeze,
    "named_buffers": _buffers,
    "get_submodule": _inner,
    "get_parameter": _parameter,
    **dict.fromkeys(_ALIKE, leave),
    **dict.fromkeys(_CHANGING, _CHANGES),
    **dict.fromkeys(_STATES, _STATE),
    **dict.fromkeys(_STATICS, _static),
    **dict.fromkeys(_PRIVATES, _PRIVATE),
}
