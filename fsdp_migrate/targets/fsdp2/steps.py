"""The steps from FSDP1 to FSDP2 for one model, in an order in which each leaves a program that works."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.targets.fsdp2.conversion import Wall
from fsdp_migrate.targets.fsdp2.target import NAME, Model, Place

HERE, WITH_YOU, WALL, NOTE = "here", "with you", "wall", "note"
CLOSED, DECLARED, OPEN = "converts whole", "converts whole, with differences to accept", "open"
# What sets a state-dict type, and what FSDP's class does with the state of an optimizer.
_SETTERS = frozenset({"state_dict_type", "set_state_dict_type"})
_OPTIMIZER_STATE = frozenset(
    """
    optim_state_dict optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict
    scatter_full_optim_state_dict shard_full_optim_state_dict flatten_sharded_optim_state_dict
    """.split()
)
_STATE = _SETTERS | _OPTIMIZER_STATE


class Step(NamedTuple):
    """One thing to do.

    `by` says who does it: this tool now (`HERE`), it with an edit of yours (`WITH_YOU`), nobody before something
    changes (`WALL`), or nobody (`NOTE`).
    """

    title: str
    by: str
    text: str
    places: tuple[Place, ...] = ()
    command: str | None = None


def status(model: Model) -> str:
    """How far a model is from being converted."""
    if model.conversion.walls:
        return OPEN
    return DECLARED if model.conversion.differences else CLOSED


def steps(model: Model) -> Iterator[Step]:
    """What to do, in order."""
    files = shlex.join(sorted({place.path for place in model.places}))
    yield from _state_dicts(model, files)
    yield from _walls(model)
    yield from _differences(model)
    yield _together(model, files)
    yield Step("check", NOTE, _CHECK, command=f"fsdp-migrate verify --rewrite PROGRAM --target {NAME} --nproc 2")


_CHECK = "PROGRAM defines `scenario(trial)`, which trains some steps and saves: docs/verify.md"


def _state_dicts(model: Model, files: str) -> Iterator[Step]:
    """State dicts can go first: the new functions work on FSDP1 too."""
    places = tuple(sorted({model.place(facts, node) for facts, node in _state_calls(model)}))
    if places and model.conversion.walls:
        text = "state dicts through `torch.distributed.checkpoint.state_dict` work on FSDP1 and on FSDP2"
        yield Step("now, still FSDP1", HERE, text, places, f"fsdp-migrate rewrite --target dcp {files}")


def _state_calls(model: Model) -> Iterator[tuple[ModuleFacts, ast.AST]]:
    for reference in (*model.closure.references, *model.closure.passed):
        parents = reference.facts.structure.parents
        parent = parents.get(reference.node)
        call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in _STATE:
            yield reference.facts, func


def _walls(model: Model) -> Iterator[Step]:
    escapes = {id(one.node) for one in model.closure.escapes}
    for (reason, step), walls in _grouped(model.conversion.walls):
        places = tuple(sorted({model.place(one.facts, one.node) for one in walls}))
        by = WALL if any(id(one.node) in escapes for one in walls) else WITH_YOU
        yield Step("remove what stops it", by, f"{reason}: {step}", places)


def _grouped(walls: Iterable[Wall]) -> list[tuple[tuple[str, str], list[Wall]]]:
    """Walls of one kind together, those that free the most places first."""
    groups: dict[tuple[str, str], list[Wall]] = {}
    for wall in walls:
        groups.setdefault((wall.reason, wall.step), []).append(wall)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _differences(model: Model) -> Iterator[Step]:
    whats = dict.fromkeys(one.what for one in model.conversion.differences)
    for what in whats:
        places = (model.place(one.facts, one.node) for one in model.conversion.differences if one.what == what)
        yield Step("accept", NOTE, what, tuple(sorted(set(places))))


def _together(model: Model, files: str) -> Step:
    unsafe = " --unsafe-fixes" if model.conversion.differences else ""
    command = f"fsdp-migrate rewrite --target {NAME}{unsafe} {files}"
    if model.conversion.walls:
        return Step("then together", WITH_YOU, "all places of the model change at once", model.places, command)
    return Step("together", HERE, "all places of the model change at once", model.places, command)
