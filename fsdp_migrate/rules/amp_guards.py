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
from fsdp_migrate.rules.amp_names import NEW_MODULE, Place, is_type, takes_keywords
from fsdp_migrate.rules.card import Verdict
from fsdp_migrate.rules.moved_imports import kept_both

SCALER = "GradScaler"
_PARAMETERS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_PARTIAL = "partial"


def scaler_verdict(facts: ModuleFacts, binding: Binding, places: Iterable[Place]) -> Verdict | None:
    """The scaler from where it is, with keywords only; None where a use does not run on both."""
    edits = []
    for place in places:
        parent = facts.structure.parents[place.node]
        if isinstance(parent, ast.ClassDef):
            if not takes_keywords(facts, parent):
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
