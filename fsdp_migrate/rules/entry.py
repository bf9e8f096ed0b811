"""A row of the index of rules: what can be asked of a rule without loading its module."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fsdp_migrate.records import NamedTuple

if TYPE_CHECKING:
    from fsdp_migrate.rules.card import FileScope, Rule
    from fsdp_migrate.scan.needles import Needles


class Entry(NamedTuple):
    """A rule as the index has it; `module` holds the rule, by its name in the package.

    `words`, `names`, `scope`, `hinted` and `beside` are the rule's own; `names` is None where all names that changed
    between releases can trigger it. `fixes` are the grades that its fixes can have, `hint` says that it finds hints
    only.
    """

    code: str
    name: str
    module: str
    words: tuple[Needles, ...] = ()
    names: tuple[str, ...] | None = ()
    scope: FileScope = "fsdp"
    fixes: tuple[str, ...] = ()
    hint: bool = False
    hinted: tuple[Needles, ...] = ()
    beside: tuple[str, ...] = ()
    target: str | None = None

    @property
    def is_neighbour(self) -> bool:
        """Whether the rule is about something beside FSDP."""
        return self.scope in ("distributed", "launched")

    def is_beside(self, raw: bytes) -> bool:
        """Whether the rule may find something in a text that is no Python."""
        return any(word.encode() in raw for word in self.beside)

    def needles(self, hints: bool) -> tuple[Needles, ...]:
        """The words that it takes for a finding, or for a hint."""
        return self.words + self.hinted if hints else self.words

    def load(self) -> Rule:
        """The rule itself, from its module."""
        key = (self.code, self.module, self.target)
        rule = _LOADED.get(key)
        if rule is None:
            rule = _LOADED[key] = _load(*key)
        return rule


_LOADED: dict[tuple[str, str, str | None], Rule] = {}


def _load(code: str, name: str, target: str | None) -> Rule:
    from fsdp_migrate.rules.card import Rule

    module = importlib.import_module(f"fsdp_migrate.{name}")
    for value in vars(module).values():
        for rule in (value,) if isinstance(value, Rule) or not isinstance(value, tuple) else value:
            if isinstance(rule, Rule) and (rule.card.code, rule.target) == (code, target):
                return rule
    raise LookupError(f"fsdp_migrate.{name} has no rule {code}")
