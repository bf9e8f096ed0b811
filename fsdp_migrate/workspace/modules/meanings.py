"""What the top-level names of a parsed module stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsdp_migrate.facts.names import LOCAL, Meaning
from fsdp_migrate.facts.scopes import Kind
from fsdp_migrate.workspace.modules.sketch import is_torch

if TYPE_CHECKING:
    from fsdp_migrate.facts import ModuleFacts


def exported_meanings(facts: ModuleFacts, name: str, asked: str) -> Sequence[str | None] | None:
    """The full names behind a top-level name of a module; None when it is what the module itself defines."""
    bindings = facts.names.exported(name)
    if len(bindings) > 1:
        bindings = [binding for binding in bindings if facts.reached(binding.node)] or bindings
    meanings = [meaning for binding in bindings for meaning in facts.names.meanings_of(binding)]
    if not bindings:
        meanings = list(facts.names.starred(name))
    names = [meaning.qualified for meaning in meanings]
    if not any(qualified is not None and is_torch(qualified) for qualified in names):
        return None
    own = {binding for binding in bindings if binding.kind is Kind.DEFINITION}
    return tuple(dict.fromkeys(asked if m.binding in own or _is_relative(m) else m.qualified for m in meanings))


def _is_relative(meaning: Meaning) -> bool:
    """Whether a name makes sense in its own module only."""
    return meaning.qualified is not None and meaning.qualified.startswith((LOCAL, "."))
