"""Calls of `torch.distributed.checkpoint` and its `state_dict` module, with the arguments that rules ask for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.code.torch_names import calls_ending_in, last_words
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.records import NamedTuple

CHECKPOINT = "torch.distributed.checkpoint"
STATE_DICT = f"{CHECKPOINT}.state_dict"
STATEFUL = f"{CHECKPOINT}.stateful.Stateful"
OPTIONS = f"{STATE_DICT}.StateDictOptions"
URL = "https://pytorch.org/docs/stable/distributed.checkpoint.html"

# The functions that get and set, with what stands behind the model by position.
_STATE_FUNCTIONS = {
    "get_model_state_dict": ("model",),
    "get_optimizer_state_dict": ("model", "optimizers"),
    "get_state_dict": ("model", "optimizers"),
    "set_model_state_dict": ("model", "model_state_dict"),
    "set_optimizer_state_dict": ("model", "optimizers", "optim_state_dict"),
    "set_state_dict": ("model", "optimizers"),
}
_STORING = {"save": ("state_dict",), "load": ("state_dict",), "async_save": ("state_dict",)}
_HOMES = {"save": "state_dict_saver", "async_save": "state_dict_saver", "load": "state_dict_loader"}
GETTERS = tuple(name for name in _STATE_FUNCTIONS if name.startswith("get_"))
SETTERS = tuple(name for name in _STATE_FUNCTIONS if name.startswith("set_"))

# The functions before torch 2.2, by what has come for them.
OLD = {"save": "save_state_dict", "async_save": "save_state_dict", "load": "load_state_dict"}

_Table = dict[str, tuple[str, tuple[str, ...]]]
_PARAMETERS: _Table = {
    **{f"{STATE_DICT}.{name}": (name, taken) for name, taken in _STATE_FUNCTIONS.items()},
    **{f"{CHECKPOINT}.{name}": (name, taken) for name, taken in _STORING.items()},
    **{f"{CHECKPOINT}.{_HOMES[name]}.{name}": (name, taken) for name, taken in _STORING.items()},
}
_OLD_PARAMETERS: _Table = {
    f"{module}.{OLD[name]}": (OLD[name], taken)
    for name, taken in _STORING.items()
    for module in (CHECKPOINT, f"{CHECKPOINT}.{_HOMES[name]}")
}
_WORDS = last_words((*_PARAMETERS, *_OLD_PARAMETERS))


def full_names(*functions: str) -> tuple[str, ...]:
    """The full names under which torch has some of these functions."""
    return tuple(path for path, (name, _) in _PARAMETERS.items() if name in functions)


class NewCall(NamedTuple):
    """A call of one of the functions: the function's own name, and its arguments by parameter as far as written out."""

    call: ast.Call
    function: str
    arguments: dict[str, ast.expr]
    is_whole: bool

    def option(self, facts: ModuleFacts, name: str) -> ast.expr | None:
        """The field `name` of the options where these are visible and have it."""
        fields = options_of(facts, self)
        return None if fields is None else fields.get(name)


def new_calls(facts: ModuleFacts) -> tuple[NewCall, ...]:
    """Every call of these functions that a supported release runs, in order."""
    return facts.memo(new_calls, lambda: tuple(_calls(facts, _PARAMETERS)))


def old_calls(facts: ModuleFacts) -> tuple[NewCall, ...]:
    """Every call of `save_state_dict` and `load_state_dict` of distributed checkpointing, in the same form."""
    return tuple(_calls(facts, _OLD_PARAMETERS))


def _calls(facts: ModuleFacts, table: _Table) -> Iterator[NewCall]:
    for call in calls_ending_in(facts, _WORDS):
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            continue
        known = table.get(facts.names.qualified(call.func) or "")
        if known is None or not facts.reached(call):
            continue
        name, parameters = known
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        arguments = {} if starred else dict(zip(parameters, call.args))
        arguments.update((one.arg, one.value) for one in call.keywords if one.arg is not None)
        whole = not starred and all(one.arg is not None for one in call.keywords)
        yield NewCall(call, name, arguments, whole)


def options_of(facts: ModuleFacts, new: NewCall) -> dict[str, ast.expr] | None:
    """The fields that the options of a call set, empty where it has none; None where they are not visible."""
    given = new.arguments.get("options")
    if given is None:
        return {} if new.is_whole else None
    if is_literal(given, None):
        return {}
    built = facts.names.value(given) if isinstance(given, ast.Name) else given
    if not isinstance(built, ast.Call) or facts.names.qualified(built.func) != OPTIONS:
        return None
    if built.args or any(one.arg is None for one in built.keywords):
        return None
    changed = isinstance(given, ast.Name) and any(
        isinstance(store.value, ast.Name) and store.value.id == given.id for store in facts.structure.stores
    )
    return None if changed else {one.arg: one.value for one in built.keywords if one.arg is not None}


def is_on(node: ast.expr | None) -> bool:
    """Whether an option is switched on in so many words."""
    return is_literal(node, True)


def is_off(node: ast.expr | None) -> bool:
    """Whether an option is absent, or switched off in so many words."""
    return node is None or is_literal(node, False)


def parts_of(facts: ModuleFacts, new: NewCall) -> tuple[ast.expr, ...]:
    """What the state dict that a call stores or fills is made of, through names, displays and items."""
    waiting = [node for name, node in new.arguments.items() if name == "state_dict"]
    found: dict[ast.expr, None] = {}
    while waiting:
        node = waiting.pop(0)
        if node in found:
            continue
        found[node] = None
        if isinstance(node, ast.Name):
            waiting += [binding.value for binding in facts.names.bindings(node) if binding.value is not None]
            waiting += (value for _, value in items_set(facts, node, new.call))
            waiting += _unpacked_from(facts, node)
        elif isinstance(node, ast.Dict):
            waiting += node.values
    return tuple(found)


def _unpacked_from(facts: ModuleFacts, name: ast.Name) -> Iterator[ast.expr]:
    """The calls `get_state_dict(...)` that a name is one of the two results of."""
    for binding in facts.names.bindings(name):
        statement = facts.statement(binding.node) if binding.value is None else None
        if isinstance(statement, ast.Assign) and any(one.call is statement.value for one in new_calls(facts)):
            yield statement.value


def stateful_class(facts: ModuleFacts, built: ast.Call) -> ast.ClassDef | None:
    """The class of the file that a call makes an object of, where it derives from DCP's Stateful directly."""
    classes = facts.names.own_classes(built.func) if isinstance(built.func, ast.Name) else []
    cls = classes[0] if len(classes) == 1 else None
    is_stateful = cls is not None and any(facts.names.qualified(base) == STATEFUL for base in cls.bases)
    return cls if is_stateful else None


def items_set(facts: ModuleFacts, name: ast.Name, at: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is stored in a dict, with its keys, in the lines above `at`."""
    for item in facts.structure.subscripts:
        is_it = isinstance(item.ctx, ast.Store) and isinstance(item.value, ast.Name) and item.value.id == name.id
        statement = facts.structure.parents[item]
        is_here = facts.function(item) is facts.function(at) and place_of(item) < place_of(at)
        if is_it and is_here and isinstance(statement, ast.Assign):
            yield item.slice, statement.value


def is_filled(facts: ModuleFacts, name: ast.Name) -> bool:
    """Whether the file puts something into a dict of this name."""
    stored = (item.value for item in facts.structure.subscripts if isinstance(item.ctx, ast.Store))
    updated = (getattr(call.func, "value", None) for call in facts.structure.method_calls.get("update", ()))
    return any(isinstance(one, ast.Name) and one.id == name.id for one in (*stored, *updated))


def item_of(display: ast.Dict, key: object) -> ast.expr | None:
    """The value that a dict display has under a key, None where it has none."""
    pairs = zip(display.keys, display.values)
    return next((value for one, value in pairs if isinstance(one, ast.Constant) and one.value == key), None)


def states_of(facts: ModuleFacts, new: NewCall) -> Iterator[NewCall]:
    """The calls that make the state which a call stores or fills, those of a Stateful in it included."""
    for part in parts_of(facts, new):
        cls = stateful_class(facts, part) if isinstance(part, ast.Call) else None
        inside = {id(part)} if cls is None else {id(node) for node in ast.walk(cls)}
        yield from (one for one in new_calls(facts) if id(one.call) in inside)


def works_on_shards(facts: ModuleFacts, new: NewCall) -> bool:
    """Whether a call gives or takes this rank's shards, by its options."""
    fields = options_of(facts, new)
    return fields is not None and is_off(fields.get("full_state_dict"))
