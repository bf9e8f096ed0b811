"""FSDP718: objects with a state of their own, which the old functions pickle and the new ones take apart.

Sources: state_dict_saver.py and state_dict_loader.py of torch 2.2 to 2.13. `save` stores what `state_dict()` returns
key by key, `save_state_dict` pickles the object under one key. `load` calls the object's `load_state_dict`; 2.4 and 2.5
then put the state in the place of the object.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from fsdp_migrate.code.plain_values import is_stateful
from fsdp_migrate.code.state_dicts.new_calls import (
    CHECKPOINT,
    OLD,
    URL,
    NewCall,
    full_names,
    items_set,
    new_calls,
    old_calls,
)
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import place_of
from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.rules.card import Example, Rule, RuleCard, finding, manual

# The releases whose `load` leaves the state in the dict.
_REPLACED = (Version("2.4"), Version("2.6"))


def check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    """Find objects that one side pickles and the other takes apart, and that are read out of the dict behind `load`."""
    for new in new_calls(facts):
        if new.function not in OLD:
            continue
        objects = _objects(facts, new)
        yield from _mixed(facts, card, new, objects)
        if new.function == "load":
            yield from _read_back(facts, card, new, objects)


def _mixed(facts: ModuleFacts, card: RuleCard, new: NewCall, objects: dict[object, ast.expr]) -> Iterator[Finding]:
    for old in old_calls(facts):
        other_side = (old.function == OLD["load"]) is not (new.function == "load")
        common = set(facts.gates.alive(new.call)) & set(facts.gates.alive(old.call))
        key = next((key for key in _objects(facts, old) if key in objects), None)
        if not other_side or not common or key is None:
            continue
        value = ast.unparse(objects[key])
        does = "asks for" if new.function == "load" else "stores"
        pickles = "asks for the pickled object" if old.function == OLD["load"] else "pickles the object"
        message = (
            f"`{value}` has a `state_dict()`: `{new.function}` {does} each key of it, and `{old.function}` in line "
            f"{old.call.lineno} {pickles}: the key {key!r} is missing"
        )
        way = f"pass `{value}.state_dict()` to both, or move both to the new functions; old files keep the object"
        yield finding(facts, card, new.call, facts.statement(new.call), message, manual(way))
        return


def _read_back(facts: ModuleFacts, card: RuleCard, new: NewCall, objects: dict[object, ast.expr]) -> Iterator[Finding]:
    state, (first, end) = new.arguments.get("state_dict"), _REPLACED
    if not isinstance(state, ast.Name) or not any(first <= release < end for release in facts.gates.alive(new.call)):
        return
    for item in facts.structure.subscripts:
        key = item.slice.value if isinstance(item.slice, ast.Constant) else None
        is_it = isinstance(item.ctx, ast.Load) and isinstance(item.value, ast.Name) and item.value.id == state.id
        is_behind = facts.function(item) is facts.function(new.call) and place_of(item) > place_of(new.call)
        if is_it and is_behind and key in objects:
            message = (
                f"`{ast.unparse(item)}` is the state of `{ast.unparse(objects[key])}` behind `load` on torch 2.4 and "
                "2.5, and the object on others"
            )
            way = f"use `{ast.unparse(objects[key])}` itself: `load` calls its `load_state_dict`"
            yield finding(facts, card, item, facts.statement(item), message, manual(way), Severity.CHANGES)


def _objects(facts: ModuleFacts, one: NewCall) -> dict[object, ast.expr]:
    """The values with a state of their own in what is stored or filled, by key as far as these are written out."""
    state = one.arguments.get("state_dict")
    built = facts.names.value(state) if isinstance(state, ast.Name) else state
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(built, ast.Dict):
        pairs += zip(built.keys, built.values)
    if isinstance(state, ast.Name):
        pairs += items_set(facts, state, one.call)
    return {key.value: value for key, value in pairs if isinstance(key, ast.Constant) and is_stateful(facts, value)}


_IMPORT = f"import torch\nimport {CHECKPOINT} as dcp\n\n"
_STATE = 'scheduler = torch.optim.lr_scheduler.StepLR(optim, 3)\nstate = {"scheduler": scheduler, "epoch": 0}\n'
_OLD_LOAD = "dcp.load_state_dict(state, dcp.FileSystemReader(path))\n"
_SAVE = "dcp.save(state, storage_writer=dcp.FileSystemWriter(path))\n"
_LOAD = "dcp.load(state, storage_reader=dcp.FileSystemReader(path))\n"

RULE = Rule(
    RuleCard(
        code="FSDP718",
        name="object-between-old-and-new-functions",
        summary="a scheduler, optimizer or module in a checkpoint that one side pickles and the other takes apart",
        explanation="""\
`save_state_dict` pickles an object under its key. `save`, its successor since torch 2.2, stores what the object's
`state_dict()` returns, key by key; `load` asks for these keys and calls `load_state_dict`. So `load` cannot read such
an object from a file of `save_state_dict`, nor `load_state_dict` from a file of `save`: "Missing key".

`load` of torch 2.4 and 2.5 replaces the object in the dict by its state: `state["scheduler"].step()` then fails.

Old and new functions store `scheduler.state_dict()` in the same way. Reported if one file has an object of torch under
the same key on both sides. Files from before the move contain the object, too.""",
        applicability="manual",
        severity=Severity.BREAKS,
        flags=(
            Example(before=_IMPORT + _STATE + _SAVE + _OLD_LOAD),
            Example(before=_IMPORT + _STATE + _LOAD + 'state["scheduler"].step()\n'),
        ),
        leaves=(
            _IMPORT + _STATE + _SAVE + _LOAD + "scheduler.step()\n",
            _IMPORT + _STATE.replace('": scheduler,', '": scheduler.state_dict(),') + _SAVE + _OLD_LOAD,
        ),
        url=URL,
    ),
    words=(),
    check=check,
    scope="distributed",
    names=lambda: full_names(*OLD),
)
