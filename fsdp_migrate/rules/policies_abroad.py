"""Wrap policies that other modules of the project give to FSDP."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.elsewhere import Use
from fsdp_migrate.rules.construction import PARTIAL, constructions, given

POLICY_ARGUMENTS = ("auto_wrap_policy", "fsdp_auto_wrap_policy", "policy")
POSITIONS = (3, 4)  # of the policy: torch 1.11, 1.12 and newer


class Abroad(NamedTuple):
    """Whether other modules give a policy to FSDP, and whether they may do more with it than that and plain calls."""

    given: bool
    unclear: bool


def abroad(facts: ModuleFacts, name: str, old: str, *, made: bool) -> Abroad:
    """What other modules do with a top-level function, or with what its calls return (`made`).

    Calls of the policy that pass the keyword `old` are unclear.
    """
    elsewhere = facts.names.elsewhere
    uses = elsewhere.uses(name) if elsewhere is not None and elsewhere.is_imported(name) else ()
    if uses is None:
        return Abroad(False, True)
    fates = [_fate(use, old, made) for use in uses]
    return Abroad(True in fates, None in fates)


def _fate(use: Use, old: str, made: bool) -> bool | None:
    """True for a policy that FSDP gets, False for a call that tells nothing, None for anything else."""
    parent = use.facts.structure.parents[use.node]
    call = parent if isinstance(parent, ast.Call) and parent.func is use.node else None
    if call is not None and not made:
        return None if any(keyword.arg == old for keyword in call.keywords) else False
    wanted = call if made else use.node
    if wanted is None:
        return None
    return True if any(source is wanted for value in _policies(use.facts) for source in value) else None


def _policies(facts: ModuleFacts) -> Iterator[Iterator[ast.expr]]:
    """The expressions behind each policy that a module gives to FSDP."""
    for one in given(facts):
        if one.name in POLICY_ARGUMENTS:
            yield _sources(facts, one.value, set())
    for call in constructions(facts):
        yield from (_sources(facts, value, set()) for value in call.args[POSITIONS[0] : POSITIONS[-1] + 1])


def _sources(facts: ModuleFacts, value: ast.expr, seen: set[ast.expr]) -> Iterator[ast.expr]:
    if value in seen:
        return
    seen.add(value)
    yield value
    if isinstance(value, ast.IfExp):
        inner = [value.body, value.orelse]
    elif isinstance(value, ast.Name):
        inner = facts.names.definitions(value)
    elif isinstance(value, ast.Call) and value.args and facts.names.qualified(value.func) == PARTIAL:
        inner = value.args[:1]
    else:
        return
    for part in inner:
        yield from _sources(facts, part, seen)
