"""The functions of torch whose calls `trace` looks for, as the rules name them."""

from __future__ import annotations

from functools import cache

from fsdp_migrate.records import NamedTuple
from fsdp_migrate.rules.card import Rule, Traced
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import last, target


class Watched(NamedTuple):
    """A rule that a call may be a place of, and which calls are."""

    rule: Rule
    traced: Traced


@cache
def apis() -> dict[str, list[Watched]]:
    """The rules by the full names of functions, under the names by which torch defines them; specific rules first."""
    found: dict[str, list[Watched]] = {}
    # A general rule is about everything, and its codes end a family of names.
    for entry in sorted(ENTRIES, key=lambda entry: entry.names is None):
        rule = entry.load()
        for traced in () if rule.calls is None else rule.calls():
            name = target(traced.name, last(traced.name) or RELEASES[-1]) or traced.name
            known = found.setdefault(name, [])
            # A rule may name it by several names; a general one is silent where another speaks.
            if all(watched.rule is not rule for watched in known) and not (known and entry.names is None):
                known.append(Watched(rule, traced))
    return found


def untraced() -> list[Rule]:
    """The rules about what no call shows: imports, tests of types, positions and defaults of arguments."""
    traced = {watched.rule.card.code for several in apis().values() for watched in several}
    rules = (entry.load() for entry in ENTRIES)
    return [rule for rule in rules if rule.card.code not in traced]
