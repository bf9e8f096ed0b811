"""Closures: the models of a project that FSDP1 wraps, each with all that is done with it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.objects import Escape, Followed, Nature, Reference, Value, follow
from fsdp_migrate.facts.project_code import Code
from fsdp_migrate.targets.fsdp2.conversion import Closure, Construction

# Methods of modules that return the module, and functions that return it or a wrapper of it.
_SELF = frozenset(
    "train eval to cuda cpu half float double bfloat16 type requires_grad_ to_empty apply share_memory xpu".split()
)
_SAME = frozenset({"torch.compile"})
# Classes that FSDP derives from, whatever else it may be.
_ABOVE = frozenset(
    {"torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module", "builtins.object", FSDP}
)


def _is_class(facts: ModuleFacts, node: ast.expr) -> bool:
    return facts.fsdp.is_class(node)


def _is_other(facts: ModuleFacts, node: ast.expr) -> bool:
    """Whether an FSDP model is certainly no instance of a class."""
    symbols = facts.names.symbols(node)
    if not symbols or None in symbols or facts.fsdp.is_class(node):
        return False
    return all(symbol.startswith("torch.") and symbol not in _ABOVE for symbol in symbols if symbol is not None)


MODEL = Nature(_is_class, _is_other, _SELF, _SAME)
# A file without one of these wraps no model.
WORDS = (b"FullyShardedDataParallel", b"FSDP")


def closures(files: Iterable[ModuleFacts], unreadable: Sequence[str] = ()) -> list[Closure]:
    """The closures of the files that may wrap a model, in the order of their first constructions.

    `unreadable` are files that have one of the `WORDS` and cannot be parsed. The facts in closures are those given, and
    others of their project: they have to be kept as long as these are looked at.
    """
    found = [one for facts in files for one in _constructions(facts)]
    code = Code()
    followed = [_Group((one,), follow([Value(one.facts, one.call)], nature=MODEL, code=code)) for one in found]
    return [_closure(group, unreadable) for group in _united(followed)]


class _Group(NamedTuple):
    """Constructions with where their models go."""

    constructions: tuple[Construction, ...]
    followed: Followed


def _constructions(facts: ModuleFacts) -> Iterator[Construction]:
    for call in facts.fsdp.constructions:
        if facts.reached(call):
            yield Construction(facts, call)


def _united(groups: Iterable[_Group]) -> list[_Group]:
    """The groups, those that share an expression as one."""
    found: list[_Group] = []
    for group in groups:
        met = [other for other in found if not _nodes(other).isdisjoint(_nodes(group))]
        for other in met:
            found.remove(other)
        found.append(_sum([*met, group]))
    return found


def _nodes(group: _Group) -> set[ast.expr]:
    return {one.node for one in (*group.followed.references, *group.followed.passed)}


def _sum(groups: list[_Group]) -> _Group:
    constructions = tuple(dict.fromkeys(one for group in groups for one in group.constructions))
    parts = [group.followed for group in groups]
    return _Group(
        constructions,
        Followed(
            _merged(one for part in parts for one in part.references),
            _merged(one for part in parts for one in part.passed),
            tuple(dict.fromkeys(one for part in parts for one in part.escapes)),
            tuple(dict.fromkeys(one for part in parts for one in part.holders)),
        ),
    )


def _merged(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """One reference for each expression."""
    found: dict[ast.expr, Reference] = {}
    for one in references:
        known = found.get(one.node)
        others = one.others if known is None else tuple(dict.fromkeys((*known.others, *one.others)))
        found[one.node] = one._replace(others=others)
    return tuple(found.values())


def _closure(group: _Group, unreadable: Sequence[str]) -> Closure:
    followed, first = group.followed, group.constructions[0]
    hidden = [Escape(first.facts, first.call, f"{name} names FSDP, and cannot be parsed") for name in unreadable]
    return Closure(group.constructions, followed.references, followed.passed, (*followed.escapes, *hidden))
