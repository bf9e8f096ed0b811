"""All rules, by code.

`RULES` holds them with their cards and loads every module; `index.ENTRIES` has what choosing among them takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsdp_migrate.rules.card import Rule, RuleCard

    RULES: tuple[Rule, ...]

__all__ = ["RULES", "find", "fitting"]


def find(code_or_name: str) -> RuleCard | None:
    """The card with this code (any case) or kebab name, None when there is none."""
    from fsdp_migrate.rules.index import ENTRIES

    wanted = code_or_name.lower()
    return next((entry.load().card for entry in ENTRIES if wanted in (entry.code.lower(), entry.name)), None)


def fitting(word: str) -> list[RuleCard]:
    """The cards that a word may mean: those whose code starts with it, else those with it in their name or summary."""
    cards, folded = [rule.card for rule in _all()], word.casefold()
    family = [card for card in cards if card.code.casefold().startswith(folded)]
    return family or [card for card in cards if folded in f"{card.name} {card.summary}".casefold()]


def _all() -> tuple[Rule, ...]:
    from fsdp_migrate.rules.index import ENTRIES

    return tuple(entry.load() for entry in ENTRIES)


def __getattr__(name: str) -> Any:
    if name == "RULES":
        return _all()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
