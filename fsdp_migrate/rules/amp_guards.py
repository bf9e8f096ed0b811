"""Imports of torch.cuda.amp for projects that support releases on both sides of torch.amp's own names.

`torch.amp.GradScaler` is for "cuda" if it is told nothing (2.3.1 amp/grad_scaler.py), so that calls with keywords run
on both; the decorators have to be told, which a partial does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from fsdp_migrate.edits import Argument, RewriteCall
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.calls import BindingError, bind
from fsdp_migrate.facts.scopes import Binding
from fsdp_migrate.rules.amp_names import NEW_MODULE, Place, is_type
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.rules.moved_imports import kept_both
from fsdp_migrate.rules.releases import uses_of

SCALER = "GradScaler"
_PARAMETERS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_PARTIAL = "partial"


def imported(facts: ModuleFacts, places: Iterable[Place]) -> dict[Binding, list[Place]]:
    """The places by the one `from ... import` that brings their name; places reached otherwise are not in it."""
    found: dict[Binding, list[Place]] = {}
    for place in places:
        bindings = facts.names.bindings(place.node) if isinstance(place.node, ast.Name) else []
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.ImportFrom) and place.device == "cuda":
            found.setdefault(bindings[0], []).append(place)
    return {binding: found[binding] for binding in found if _is_all(found[binding], binding)}


def _is_all(places: Iterable[Place], binding: Binding) -> bool:
    """Whether nothing else is done with the name."""
    return {place.node for place in places} == set(uses_of(binding)) and all(one.doubt is None for one in places)


def scaler_verdict(facts: ModuleFacts, binding: Binding, places: Iterable[Place]) -> Verdict | None:
    """The scaler from where it is, with keywords only; None where a use does not run on both."""
    edits = []
    for place in places:
        parent = facts.structure.parents[place.node]
        if isinstance(parent, ast.ClassDef):
            if _passes_positions(parent):
                return None
        elif isinstance(parent, ast.Call) and parent.func is place.node:
            try:
                bound = bind(parent, _PARAMETERS, 0)
            except BindingError:
                return None
            if parent.args:
                ordered = sorted((argument.index, name) for name, argument in bound.items())
                arguments = tuple(Argument(name, index) for index, name in ordered)
                edits.append(RewriteCall(facts.source.span(parent), None, arguments))
        elif not is_type(facts, place.node):
            return None
    verdict = kept_both(facts, {binding: f"{NEW_MODULE}.{SCALER}"}, edits)
    return verdict if verdict.fix is not None else None


def _passes_positions(cls: ast.ClassDef) -> bool:
    """Whether a subclass hands positions to the constructor of its base."""
    calls = (node for node in ast.walk(cls) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return any(call.func.attr == "__init__" and call.args for call in calls if isinstance(call.func, ast.Attribute))


def decorators_verdict(facts: ModuleFacts, names: Mapping[Binding, str]) -> Verdict:
    """The decorators of one import from where they are, told the device in the newer place."""
    first = next(iter(names))
    told = [f'{binding.name} = {_PARTIAL}({binding.name}, device_type="cuda")' for binding in names]
    if not _is_partial(first):
        bound = [one for scope in first.scope.enclosing() for one in scope.bindings.get(_PARTIAL, ())]
        if any(one.target != f"functools.{_PARTIAL}" for one in bound):
            reason = f"the name `{_PARTIAL}` is taken here: tell the new decorators the device by hand"
            return Verdict(manual=reason, below_floor=True)
        told.insert(0, f"from functools import {_PARTIAL}")
    return kept_both(facts, {binding: f"{NEW_MODULE}.{name}" for binding, name in names.items()}, then=told)


def _is_partial(binding: Binding) -> bool:
    """Whether `partial` is the one of functools, imported above."""
    known = next((scope.bindings[_PARTIAL] for scope in binding.scope.enclosing() if _PARTIAL in scope.bindings), [])
    if len(known) != 1 or known[0].conditional:
        return False
    return known[0].target == f"functools.{_PARTIAL}" and known[0].position < binding.position
