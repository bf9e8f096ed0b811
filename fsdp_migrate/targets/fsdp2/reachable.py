"""The modules that one of the project takes something from."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.other_modules import imported_modules

_MOST_MODULES = 200


def reachable(facts: ModuleFacts) -> Iterator[ModuleFacts]:
    """A module and those of its project that it imports, directly and through one another."""
    seen, waiting = {facts.path}, [facts]
    while waiting and len(seen) < _MOST_MODULES:
        one = waiting.pop()
        yield one
        for name in imported_modules(one.structure):
            other = None if one.project is None else one.project.module(name)
            if other is not None and other.path not in seen:
                seen.add(other.path)
                waiting.append(other)
