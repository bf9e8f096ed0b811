"""What a state-dict type and its configs ask for, read off where they are set."""

from __future__ import annotations

import ast
from collections.abc import Callable

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal, is_written_out
from fsdp_migrate.facts.evaluation import pure
from fsdp_migrate.facts.fsdp import TypeSetting
from fsdp_migrate.records import NamedTuple

FULL, SHARDED, LOCAL = "FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"


class NotUnderstood(Exception):
    """A place that stays as it is; the message is the reason for the user."""


class Undecided(NotUnderstood):
    """A type or config that is decided at run time."""


class Wanted(NamedTuple):
    """Where a state dict goes: off the device, and to rank 0 only; `flag` is what decides at run time on the first."""

    offload: bool
    rank0_only: bool
    flag: ast.expr | None = None


class InForce(NamedTuple):
    """A state-dict type with what its two configs ask for."""

    type_name: str
    model: Wanted
    optimizer: Wanted


# Without a config: the optimizer's default is not the model's (torch 2.1 to 2.15, api.py).
_DEFAULTS = {
    FULL: (Wanted(False, False), Wanted(True, False)),
    SHARDED: (Wanted(False, False), Wanted(True, False)),
}
_CLASSES = {
    FULL: ("FullStateDictConfig", "FullOptimStateDictConfig"),
    SHARDED: ("ShardedStateDictConfig", "ShardedOptimStateDictConfig"),
}
NEVER_SET = InForce(FULL, *_DEFAULTS[FULL])
IN_SHARDS = InForce(SHARDED, *_DEFAULTS[SHARDED])


class Given(NamedTuple):
    """An expression, read in the module of `facts`."""

    facts: ModuleFacts
    node: ast.expr


Follow = Callable[[Given], Given]


def as_written(given: Given) -> Given:
    """The expression itself."""
    return given


def in_force(facts: ModuleFacts, setting: TypeSetting, follow: Follow = as_written, *, flags: bool = False) -> InForce:
    """What a setting asks for; `follow` says what the parameters of a function around it stand for.

    With `flags` whether the state leaves the device may be decided at run time.

    Raises:
        NotUnderstood: its type or a config is not written out where it can be seen, or has no successor.
    """
    setting = _unpacked(facts, setting)
    if not is_written_out(setting.call):
        raise NotUnderstood("the call passes `*args` or `**kwargs`: write out the arguments")
    type_name = type_of(facts, setting, follow)
    if type_name is None:
        raise Undecided("the type is chosen at run time")
    if type_name not in _CLASSES:
        raise NotUnderstood(f"the new functions have no `{type_name}`: use SHARDED_STATE_DICT, which can be resharded")
    model_class, optimizer_class = _CLASSES[type_name]
    model, optimizer = _DEFAULTS[type_name]
    return InForce(
        type_name,
        _wanted(facts, setting.config, model_class, model, follow, flags),
        _wanted(facts, setting.optim_config, optimizer_class, optimizer, follow, flags),
    )


def type_of(facts: ModuleFacts, setting: TypeSetting, follow: Follow = as_written) -> str | None:
    """The name of the type, None where it is chosen at run time."""
    if setting.type_name is not None or setting.type_node is None:
        return setting.type_name
    given = follow(Given(facts, setting.type_node))
    return given.facts.fsdp.type_name(given.node)


def _unpacked(facts: ModuleFacts, setting: TypeSetting) -> TypeSetting:
    """A setting whose last arguments are `*configs`, a tuple that is written out, or that a function returns."""
    if not setting.call.args or setting.call.keywords:
        return setting
    *first, last = setting.call.args
    configs = _tuple(facts, last.value) if isinstance(last, ast.Starred) else None
    if configs is None:
        return setting
    call = ast.Call(setting.call.func, [*first, *configs.elts], [])
    given = dict(zip(_CONFIGS, call.args[_BEFORE_CONFIGS:]))
    return setting._replace(call=call, config=given.get("config"), optim_config=given.get("optim_config"))


def _tuple(facts: ModuleFacts, node: ast.expr) -> ast.Tuple | None:
    """The tuple that a name or a call of a function of this file stands for."""
    value = facts.names.value(node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.Call) and not value.args and not value.keywords and isinstance(value.func, ast.Name):
        function = facts.names.definition(value.func)
        inside = ast.walk(function) if isinstance(function, ast.FunctionDef) else ()
        returns = [one.value for one in inside if isinstance(one, ast.Return)]
        value = returns[0] if len(returns) == 1 else None
    return value if isinstance(value, ast.Tuple) else None


# state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
_CONFIGS, _BEFORE_CONFIGS = ("config", "optim_config"), 2


def _wanted(
    facts: ModuleFacts, node: ast.expr | None, cls: str, default: Wanted, follow: Follow, flags: bool
) -> Wanted:
    given = None if node is None else follow(Given(facts, node))
    if given is None or is_literal(given.node, None):
        return default
    text = " ".join(ast.unparse(given.node).split())
    config = given.facts.fsdp.config(given.node)
    if config is None:
        raise Undecided(f"the fields of `{text}` are not visible")
    if config.cls != cls:
        raise NotUnderstood(f"this type does not accept `{config.cls}`: it needs `{cls}`")
    fields = {name: follow(Given(given.facts, value)) for name, value in config.fields.items()}
    offload = fields.get("offload_to_cpu")
    rank0_only = _flag(fields.get("rank0_only"), default.rank0_only, text)
    if offload is not None and is_on_gpu(offload.facts, offload.node):
        return Wanted(True, rank0_only)  # where the model is on the CPU, its state is there either way
    if flags and offload is not None and not isinstance(offload.node, ast.Constant) and pure(offload.node):
        return Wanted(True, rank0_only, offload.node)
    return Wanted(_flag(offload, default.offload, text), rank0_only)


def is_on_gpu(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an expression says whether the program runs on a GPU: `torch.cuda.is_available()`, `x.type == "cuda"`."""
    if isinstance(node, ast.Name):
        value = facts.names.value(node)
        if value is not None:
            return is_on_gpu(facts, value)
        found = _elsewhere(facts, node)
        return found is not None and is_on_gpu(*found)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and facts.names.qualified(node.func) == "torch.cuda.is_available"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = {side.value for side in (node.left, node.comparators[0]) if isinstance(side, ast.Constant)}
        return sides == ({"cuda"} if isinstance(node.ops[0], ast.Eq) else {"cpu"} if _differs(node) else None)
    return False


def _differs(node: ast.Compare) -> bool:
    return isinstance(node.ops[0], ast.NotEq)


def _elsewhere(facts: ModuleFacts, node: ast.Name) -> tuple[ModuleFacts, ast.expr] | None:
    """What another module of the project assigns to a name that this one imports."""
    qualified = facts.names.qualified(node)
    found = facts.project.definition(qualified) if facts.project is not None and qualified is not None else None
    values = [] if found is None else [one.value for one in found[1]]
    return (found[0], values[0]) if found is not None and len(values) == 1 and values[0] is not None else None


def _flag(given: Given | None, default: bool, text: str) -> bool:
    if given is None:
        return default
    if is_literal(given.node, True) or is_literal(given.node, False):
        return bool(getattr(given.node, "value"))  # noqa: B009 - a constant, by `is_literal`
    raise Undecided(f"`{ast.unparse(given.node)}` in `{text}` is only known at run time")
