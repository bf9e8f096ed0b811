"""The steps from FSDP1 to FSDP2 for one model, in an order in which each leaves a program that works."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.conversion import Difference, Wall
from fsdp_migrate.targets.fsdp2.target import NAME, Model, Place
from fsdp_migrate.workspace.settings.settings import default_range

if TYPE_CHECKING:
    from fsdp_migrate.torch_api import TorchRange

TOOL, YOU = "fsdp-migrate", "you"
NOTE = "note"
CLOSED, DECLARED, OPEN = "converts whole", "converts whole, with differences to accept", "stopped"
# The target of state dicts alone.
_STATES = "dcp"
# What sets a state-dict type, and what FSDP's class does with the state of an optimizer.
_SETTERS = frozenset({"state_dict_type", "set_state_dict_type"})
_OPTIMIZER_STATE = frozenset(
    """
    optim_state_dict optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict
    scatter_full_optim_state_dict shard_full_optim_state_dict flatten_sharded_optim_state_dict
    """.split()
)
_STATE = _SETTERS | _OPTIMIZER_STATE


class Given(Protocol):
    """The options of a plan."""

    @property
    def torch(self) -> TorchRange | None:
        """The releases to support."""

    @property
    def fsdp2_helper(self) -> str | None:
        """Whether there may be a generated module."""

    @property
    def checkpoints(self) -> str | None:
        """Whether old files have to stay readable."""

    @property
    def all_parameters_used(self) -> bool | None:
        """Whether every parameter gets a gradient."""


class Step(NamedTuple):
    """One thing to do.

    `by` says who does it, this tool or you. `text` says what is the case, and `todo` what to do about it.
    """

    title: str
    by: str
    text: str
    todo: str | None = None
    places: tuple[Place, ...] = ()
    command: str | None = None


def status(model: Model) -> str:
    """How far a model is from being converted."""
    if model.conversion.walls:
        return OPEN
    return DECLARED if model.conversion.differences else CLOSED


def steps(model: Model, given: Given) -> Iterator[Step]:
    """What to do, in order."""
    yield from _state_dicts(model)
    yield from _walls(model)
    yield from _told("accept or avoid", model, model.conversion.differences)
    yield from _told(NOTE, model, model.conversion.notes)
    unsafe = bool(model.conversion.differences)
    files = {place.path for place in model.places}
    yield Step("compare", YOU, _CHECK, command=check(given, unsafe=unsafe))
    command = convert(files, given, unsafe=unsafe)
    yield Step("convert", TOOL, "all places of the model change together", places=model.places, command=command)


def check(given: Given, *, unsafe: bool) -> str:
    """The command that compares a program with its conversion, which it does not write."""
    # `verify` has `--torch` for a Python, and `--torch-range` for the releases.
    options = _options(given, "--torch-range", unsafe=unsafe)
    return f"fsdp-migrate verify --rewrite PROGRAM --target {NAME}{options} --nproc 2"


def convert(files: Iterable[str], given: Given, *, unsafe: bool) -> str:
    """The command that converts the models in some files."""
    return (
        f"fsdp-migrate rewrite --target {NAME}{_options(given, '--torch', unsafe=unsafe)} {shlex.join(sorted(files))}"
    )


_CHECK = "PROGRAM has a function `scenario(trial)` that trains, saves and loads (docs/verify.md); nothing is written"


def _options(given: Given, torch: str, *, unsafe: bool) -> str:
    """The options of a plan, for the commands in it; `torch` is the one for the releases."""
    told = ["--unsafe-fixes"] if unsafe else []
    told += [] if given.torch is None else [f"{torch}={shlex.quote(str(given.torch))}"]
    told += [] if given.fsdp2_helper is None else [f"--fsdp2-helper={given.fsdp2_helper}"]
    told += [] if given.checkpoints is None else [f"--checkpoints={given.checkpoints}"]
    told += ["--all-parameters-used"] if given.all_parameters_used else []
    return "".join(f" {one}" for one in told)


def _state_dicts(model: Model) -> Iterator[Step]:
    """State dicts can go first: the new functions work on FSDP1 too."""
    places = tuple(sorted({model.place(facts, node) for facts, node in _state_calls(model)}))
    if places and model.conversion.walls:
        floor = default_range(_STATES)
        late = model.facts.torch.oldest < floor.oldest
        needs, torch = (f" (torch{floor})", f" --torch={shlex.quote(str(floor))}") if late else ("", "")
        text = f"the new functions for state dicts work on FSDP1 and on FSDP2{needs}"
        files = shlex.join(sorted({place.path for place in places}))
        command = f"fsdp-migrate rewrite --target {_STATES}{torch} {files}"
        yield Step("already now", TOOL, text, places=places, command=command)


def _state_calls(model: Model) -> Iterator[tuple[ModuleFacts, ast.AST]]:
    for reference in (*model.closure.references, *model.closure.passed):
        parents = reference.facts.structure.parents
        parent = parents.get(reference.node)
        call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in _STATE:
            yield reference.facts, func


def _walls(model: Model) -> Iterator[Step]:
    for (reason, step), walls in _grouped(model.conversion.walls):
        places = tuple(sorted({model.place(one.facts, one.node) for one in walls}))
        yield Step("this stops it", YOU, reason, step, places)


def _grouped(walls: Iterable[Wall]) -> list[tuple[tuple[str, str], list[Wall]]]:
    """Walls of one kind together, those that free the most places first."""
    groups: dict[tuple[str, str], list[Wall]] = {}
    for wall in walls:
        groups.setdefault((wall.reason, wall.step), []).append(wall)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _told(title: str, model: Model, changes: Sequence[Difference]) -> Iterator[Step]:
    """Changes of one kind together."""
    for what in dict.fromkeys(one.what for one in changes):
        places = (model.place(one.facts, one.node) for one in changes if one.what == what)
        yield Step(title, YOU, what, places=tuple(sorted(set(places))))
