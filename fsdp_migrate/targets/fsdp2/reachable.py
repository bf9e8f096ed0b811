"""The modules that one of the project takes something from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.other_modules import imported_modules

_MOST_MODULES = 200


def reachable(facts: ModuleFacts) -> Iterator[ModuleFacts]:
    """A module and those of its project that it imports, directly and through one another."""
    seen, waiting = {facts.path}, [facts]
    while waiting and len(seen) < _MOST_MODULES:
        one = waiting.pop()
        yield one
        for other in one.memo(reachable, partial(_imported, one)):
            if other.path not in seen:
                seen.add(other.path)
                waiting.append(other)


def _imported(facts: ModuleFacts) -> list[ModuleFacts]:
    """The modules of its project that a module imports itself."""
    project, names = facts.project, imported_modules(facts.structure)
    found = () if project is None else (project.module(name) for name in dict.fromkeys(names))
    return list(dict.fromkeys(one for one in found if one is not None))
