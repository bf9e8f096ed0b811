"""A row of the index of rules: what can be asked of a rule without loading its module."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.rules.card import Rule


class Entry(NamedTuple):
    """A rule as the index has it; `module` holds the rule, by its name in the package.

    `needles`, `neighbour`, `near`, `names` and `everywhere` are the rule's own; `changed` says that all names of the
    API data which changed between releases can trigger it too. The rule finds nothing where none of the `marks` is
    written and none of those names. `fixes` are the grades that its fixes can have.
    """

    code: str
    name: str
    module: str
    needles: tuple[str, ...]
    marks: tuple[str, ...] = ()
    neighbour: bool = False
    near: str | None = None
    names: tuple[str, ...] = ()
    changed: bool = False
    everywhere: bool = False
    fixes: tuple[str, ...] = ()

    def load(self) -> Rule:
        """The rule itself, from its module."""
        rule = _LOADED.get(self.code)
        if rule is None:
            rule = _LOADED[self.code] = _load(self.module, self.code)
        return rule


_LOADED: dict[str, Rule] = {}


def _load(name: str, code: str) -> Rule:
    from fsdp_migrate.rules.card import Rule

    module = importlib.import_module(f"fsdp_migrate.{name}")
    for value in vars(module).values():
        for rule in value if isinstance(value, tuple) else (value,):
            if isinstance(rule, Rule) and rule.card.code == code:
                return rule
    raise LookupError(f"fsdp_migrate.{name} has no rule {code}")
