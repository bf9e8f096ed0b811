"""Imports of torch.cuda.amp and torch.cpu.amp that take their names from torch.amp instead."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from fsdp_migrate.edits import MoveImport, Replace, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.findings import Fix
from fsdp_migrate.rules.amp_names import NEW_MODULE, Place, is_type, text_trouble
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.rules.moved_modules import has_own_lines, move
from fsdp_migrate.rules.releases import is_exported, strings_naming, uses_of

CallEdits = tuple[Replace | RewriteCall, ...]


def imported(facts: ModuleFacts, places: Iterable[Place]) -> dict[Binding, list[Place]]:
    """The places by the one `from ... import` that brings their name; places reached otherwise are not in it."""
    found: dict[Binding, list[Place]] = {}
    for place in places:
        bindings = facts.names.bindings(place.node) if isinstance(place.node, ast.Name) else []
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.ImportFrom):
            found.setdefault(bindings[0], []).append(place)
    return {binding: found[binding] for binding in found if _is_all(found[binding], binding)}


def _is_all(places: Iterable[Place], binding: Binding) -> bool:
    """Whether nothing else is done with the name."""
    return {place.node for place in places} == set(uses_of(binding)) and all(one.doubt is None for one in places)


def moved(
    facts: ModuleFacts, binding: Binding, places: Iterable[Place], follow: Callable[[Place], CallEdits | None]
) -> Verdict | None:
    """The verdict that imports the name from torch.amp; None where the import or a use of the name stands against it.

    `follow` gives the edits of one use for the new name, None when it does not go on with that.
    """
    if _trouble(facts, binding):
        return None
    edits: list[Replace | RewriteCall] = []
    for place in places:
        followed = follow(place)
        if followed is None or (followed and text_trouble(facts, place.node) is not None):
            return None
        edits += followed
    return Verdict(Fix((_move(facts, binding), *edits)))


def with_torch(facts: ModuleFacts, binding: Binding, verdict: Verdict) -> Verdict | None:
    """The verdict with an import of torch in front of that of the name; None where `torch` is another thing somewhere.

    The edits call it `torch`.
    """
    scopes = [*binding.scope.enclosing(), *binding.scope.nested()]
    if verdict.fix is None or any("torch" in scope.bindings or "torch" in scope.uses for scope in scopes):
        return None
    _, *edits = verdict.fix.edits
    return Verdict(Fix((_move(facts, binding, ("import torch",)), *edits)))


def _move(facts: ModuleFacts, binding: Binding, before: tuple[str, ...] = ()) -> MoveImport:
    statement = binding.node
    assert isinstance(statement, ast.stmt)
    return move(facts, statement, binding.name, NEW_MODULE)._replace(before=before)


def _trouble(facts: ModuleFacts, binding: Binding) -> bool:
    """Whether the import cannot be written anew, or its name is for others too."""
    statement = binding.node
    assert isinstance(statement, ast.ImportFrom)
    if len(binding.scope.bindings[binding.name]) != 1 or binding.scope.is_class or is_exported(facts, binding):
        return True
    if not has_own_lines(facts, statement):
        return True
    return not all(is_type(facts, text) for text in strings_naming(facts, binding.name))
