"""Closures: the models of a project that FSDP1 wraps, each with all that is done with it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.objects import Escape, Followed, Nature, ProjectCode, follow
from fsdp_migrate.facts.project_code import TooMuchError
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction
from fsdp_migrate.targets.fsdp2.inner_units import Inner
from fsdp_migrate.targets.fsdp2.seeds import Seed, seeds_of

# Methods of modules that return the module, and functions that return it or a wrapper of it.
_SELF = frozenset(
    "train eval to cuda cpu half float double bfloat16 type requires_grad_ to_empty apply share_memory xpu".split()
)
_CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
_SAME = frozenset({"torch.compile", f"{_CHECKPOINTING}.offload_wrapper", f"{_CHECKPOINTING}.checkpoint_wrapper"})
# Classes that FSDP derives from.
_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module", "builtins.object"})
# What may be FSDP under another name, or is a test of what an object has.
_NO_OTHERS = ("FSDP", "FullyShardedDataParallel", "Module", "object")
_TESTS = ("typing", "typing_extensions", "abc", "collections")


def _is_class(facts: ModuleFacts, node: ast.expr) -> bool:
    return facts.fsdp.is_class(node)


def _is_base(facts: ModuleFacts, node: ast.expr) -> bool:
    symbols = facts.names.symbols(node)
    return bool(symbols) and symbols <= _BASES


def _is_other(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an FSDP model is certainly no instance of a class."""
    symbols = facts.names.symbols(node)
    if not symbols or facts.fsdp.is_class(node):
        return False
    return all(symbol is not None and _is_foreign(symbol) for symbol in symbols)


def _is_foreign(symbol: str) -> bool:
    return symbol.rpartition(".")[2] not in _NO_OTHERS and symbol.split(".")[0] not in _TESTS


MODEL = Nature(_is_class, _is_base, _is_other, _SELF, _SAME)
# A file without one of these wraps no model.
WORDS = (b"FullyShardedDataParallel", b"FSDP")


# The expressions for models of a closure at which its conversion changes something, or is stopped.
Changes = Callable[[Closure], frozenset[ast.expr]]


def closures(
    files: Iterable[ModuleFacts],
    unreadable: Sequence[str] = (),
    code: ProjectCode | None = None,
    changes: Changes | None = None,
) -> list[Closure]:
    """The closures of the files that may wrap a model, in the order of their first constructions.

    Models that meet in an expression are one closure; with `changes` only if the expression is among those of one of
    them: a function that does the same with a model of either kind may be shared.
    `unreadable` are files that have one of the `WORDS` and cannot be parsed. `code` shares what is found out. The facts
    in closures are those given, and others of their project: they have to be kept as long as these are looked at.
    """
    code = code or ProjectCode()
    parts = [_Part(seed, _followed(seed, code)) for facts in files for seed in seeds_of(facts)]
    parts = _with_inner(_united(parts, code, changes), code)
    return [closure for part in parts if (closure := _closure(part, unreadable)) is not None]


_UNREADABLE, _CORRECT = "names FSDP, and cannot be parsed", "correct that file, or leave it out by `--exclude`"
# Questions about the project's code, and places that are looked at, to follow or to convert one model. The most that a
# public program took is 145,000 (ColossalAI).
MOST_WORK = 250_000
GIVEN_UP = (RecursionError, TooMuchError)
_TOO_DEEP = "the code that uses it is nested too deeply to be followed"
_TOO_MUCH = f"it goes through so much code that {MOST_WORK:,} steps do not do to follow it"


def given_up(error: Exception) -> tuple[str, str | None]:
    """Why a model is given up at one of `GIVEN_UP`, and what to do instead if that is something of its own."""
    if isinstance(error, TooMuchError):
        return str(error) or _TOO_MUCH, "name the files of this program only, or convert it by hand"
    return _TOO_DEEP, None


class _Part(NamedTuple):
    """Where some models come from, and where they go."""

    seed: Seed
    followed: Followed

    @property
    def nodes(self) -> frozenset[ast.expr]:
        """The expressions that may stand for the models."""
        return frozenset(one.node for one in (*self.followed.references, *self.followed.passed))


def _followed(seed: Seed, code: ProjectCode) -> Followed:
    try:
        with code.limited(MOST_WORK):
            return follow(seed.values, nature=MODEL, code=code, makers=seed.makers)
    except GIVEN_UP as error:
        start = (*seed.values, *seed.makers)[0]
        return Followed((), (), (Escape(start.facts, start.node, *given_up(error)),), (), ())


def _united(parts: Sequence[_Part], code: ProjectCode, changes: Changes | None) -> list[_Part]:
    """The parts, those that share an expression as one."""
    users: dict[ast.expr, list[int]] = {}
    for number, part in enumerate(parts):
        for node in part.nodes:
            users.setdefault(node, []).append(number)
    shared = {node: numbers for node, numbers in users.items() if len(numbers) > 1}
    groups = {number: {number} for number in range(len(parts))}
    for number in sorted({number for numbers in shared.values() for number in numbers}):
        own = {node: numbers for node, numbers in shared.items() if number in numbers}
        if all(groups[number].issuperset(numbers) for numbers in own.values()):
            continue
        closure = _closure(parts[number], ())
        changed = own if changes is None else frozenset() if closure is None else changes(closure)
        for numbers in (numbers for node, numbers in own.items() if node in changed):
            joined = set[int]().union(*(groups[one] for one in numbers))
            groups.update(dict.fromkeys(joined, joined))
    chosen = {frozenset(group): None for group in groups.values()}
    return [_as_one([parts[number] for number in sorted(group)], code) for group in chosen]


def _as_one(group: Sequence[_Part], code: ProjectCode) -> _Part:
    """Several parts as one: what each of them gives is then not what another's expressions may be instead."""
    if len(group) == 1:
        return group[0]
    seeds = [part.seed for part in group]
    seed = Seed(
        tuple(dict.fromkeys(one for other in seeds for one in other.constructions)),
        tuple(dict.fromkeys(one for other in seeds for one in other.units)),
        tuple(dict.fromkeys(one for other in seeds for one in other.makers)),
        tuple(dict.fromkeys(one for other in seeds for one in other.escapes)),
    )
    if any(part.followed.escapes or part.seed.escapes for part in group):
        return _Part(seed, _sum(group))  # It stays as it is, whatever else its expressions may be.
    return _Part(seed, _followed(seed, code))


def _sum(group: Sequence[_Part]) -> Followed:
    parts = [part.followed for part in group]
    return Followed(
        tuple({one.node: one for part in parts for one in part.references}.values()),
        tuple({one.node: one for part in parts for one in part.passed}.values()),
        tuple(dict.fromkeys(one for part in parts for one in part.escapes)),
        tuple(dict.fromkeys(one for part in parts for one in part.holders)),
        tuple(dict.fromkeys(one for part in parts for one in part.made)),
    )


def _with_inner(parts: list[_Part], code: ProjectCode) -> list[_Part]:
    """The parts with those of inner units united with the models that they are in."""
    inner = Inner([one for part in parts for one in part.seed.constructions], code)
    home = {one: number for number, part in enumerate(parts) for one in (*part.seed.constructions, *part.seed.units)}
    groups = {number: {number} for number in range(len(parts))}
    for one in home:
        for outer in inner.outer(one):
            joined = groups[home[one]] | groups[home[outer]]
            groups.update(dict.fromkeys(joined, joined))
    chosen = {frozenset(group): None for group in groups.values()}
    together = [_as_one([parts[number] for number in sorted(group)], code) for group in chosen]
    return [part._replace(followed=inner.settled(part.followed, part.seed)) for part in together]


def _closure(part: _Part, unreadable: Sequence[str]) -> Closure | None:
    """A part as others take it, None where nothing is seen to be built."""
    seed, followed = part.seed, part.followed
    constructions = (*seed.constructions, *_built(part)) or seed.units
    if not constructions:
        return None
    escapes = [*followed.escapes, *seed.escapes]
    first = constructions[0]
    escapes += (Escape(first.facts, first.call, f"{name} {_UNREADABLE}", _CORRECT) for name in unreadable)
    escapes += (Escape(one.facts, one.node, "FSDP1's class is passed on from here") for one in seed.makers)
    if constructions == seed.units:
        escapes.append(Escape(first.facts, first.call, "FSDP does not wrap the model that this is a part of"))
    given = {node for one in constructions for value in _arguments(one.call) for node in ast.walk(value)}
    references = tuple(one for one in followed.references if one.node not in given)
    return Closure(constructions, references, followed.passed, tuple(escapes))


def _built(part: _Part) -> Iterator[Construction]:
    """The calls of what the class is passed on to; those that it is given to, where none is seen and it gets lost."""
    for value in part.followed.made:
        if isinstance(value.node, ast.Call):
            yield Construction(value.facts, value.node)
    if not part.followed.made and part.followed.escapes:
        for maker in part.seed.makers:
            parent = maker.facts.structure.parents[maker.node]
            call = maker.facts.structure.parents[parent] if isinstance(parent, ast.keyword) else parent
            if isinstance(call, ast.Call):
                yield Construction(maker.facts, call)


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    """What a construction is given: a function among it sees the model as it was."""
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)
