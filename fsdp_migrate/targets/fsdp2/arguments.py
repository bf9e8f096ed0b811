"""The arguments of a call of FSDP1's class, those in a dict that is written for it among them."""

from __future__ import annotations

import ast

from fsdp_migrate.code.argument_dicts import is_builtin_dict
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind, is_written_out
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.conversion import Construction
from fsdp_migrate.targets.fsdp2.policies import AtRunTime, followed

# The order of the constructor's parameters, the same since torch 2.1; `device_mesh` came with 2.2.
PARAMETERS = (
    "module",
    "process_group",
    "sharding_strategy",
    "cpu_offload",
    "auto_wrap_policy",
    "backward_prefetch",
    "mixed_precision",
    "ignored_modules",
    "param_init_fn",
    "device_id",
    "sync_module_states",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "ignored_states",
    "device_mesh",
)
# What FSDP2 always does, or leaves to methods of the sharded model: speed and memory, no other results.
WITHOUT_MEANING = frozenset({"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params"})


class Given(NamedTuple):
    """The arguments by parameter, and the names of dicts that some of them come from."""

    values: dict[str, ast.expr]
    dicts: tuple[ast.Name, ...] = ()

    @property
    def module(self) -> ast.expr:
        """What is wrapped."""
        return self.values["module"]


def written_out(facts: ModuleFacts, call: ast.Call) -> Given:
    """The arguments of a call.

    Raises:
        AtRunTime: something is unpacked into it that is not visible.
        BindingError: it does not fit the constructor.
    """
    if is_written_out(call):
        return Given({name: one.value for name, one in bind(call, PARAMETERS, 1).items()})
    values: dict[str, ast.expr] = {}
    dicts = []
    for position, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            raise AtRunTime(f"`{ast.unparse(argument)}`")
        _set(values, PARAMETERS[position], argument)
    for keyword in call.keywords:
        if keyword.arg is not None:
            _set(values, keyword.arg, keyword.value)
            continue
        if not isinstance(keyword.value, ast.Name):
            raise AtRunTime(f"`**{ast.unparse(keyword.value)}`")
        dicts.append(keyword.value)
        for name, value in _items(facts, keyword.value, call).items():
            _set(values, name, value)
    if "module" not in values:
        raise BindingError("lacks `module`")
    return Given(values, tuple(dicts))


def ignored(construction: Construction) -> list[ast.expr]:
    """The parameters and modules that a construction lists as not to be sharded, as far as they are written there."""
    lists = [one.value for one in construction.call.keywords if one.arg in ("ignored_states", "ignored_modules")]
    return [item for one in lists if isinstance(one, (ast.List, ast.Tuple, ast.Set)) for item in one.elts]


def _set(values: dict[str, ast.expr], name: str, value: ast.expr) -> None:
    if name not in PARAMETERS:
        raise BindingError(f"passes `{name}`, which no supported release has")
    if name in values:
        raise BindingError(f"passes `{name}` twice")
    values[name] = value


def _items(facts: ModuleFacts, name: ast.Name, at: ast.Call) -> dict[str, ast.expr]:
    """What is in a dict that is bound once, next to the call, and only ever unpacked."""
    unknown = AtRunTime(f"`**{name.id}`")
    value = followed(facts, name, at)
    home = facts.scope(name).lookup(name.id)
    if home is None or home is not facts.scope(at) or not _is_only_unpacked(facts, name):
        raise unknown
    if isinstance(value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        pairs = list(zip(keys, value.values))
    elif isinstance(value, ast.Call) and is_builtin_dict(facts, value.func) and not value.args:
        pairs = [(keyword.arg, keyword.value) for keyword in value.keywords]
    else:
        raise unknown
    found: dict[str, ast.expr] = {}
    for key, item in pairs:
        if not isinstance(key, str) or key in found:
            raise unknown
        found[key] = item
    return found


def _is_only_unpacked(facts: ModuleFacts, name: ast.Name) -> bool:
    home = facts.scope(name).lookup(name.id)
    uses = [] if home is None else [use for scope in home.nested() for use in scope.uses.get(name.id, ())]
    parents = [facts.structure.parents[use] for use in uses if isinstance(use.ctx, ast.Load)]
    return all(isinstance(one, ast.keyword) and one.arg is None for one in parents)
