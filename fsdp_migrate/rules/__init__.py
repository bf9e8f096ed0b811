"""All rules, by code."""

from __future__ import annotations

from fsdp_migrate.rules import (
    flat_parameter,
    legacy_cards,
    lost_state,
    moved_flat_parameter,
    moved_fsdp_flattened,
    optim_input,
    removed_hooks,
    state_dict_config,
    state_dict_type,
    to_load_order,
    type_is_flat_parameter,
    unparsable,
)
from fsdp_migrate.rules.card import Rule, RuleCard

_RULES = (
    *legacy_cards.RULES,
    optim_input.RULE,
    to_load_order.RULE,
    removed_hooks.THIRD_POSITIONAL,
    removed_hooks.HOOKS,
    lost_state.SWALLOWED,
    lost_state.DISCARDED,
    state_dict_config.POSITIONAL,
    state_dict_config.WRONG_CLASS,
    state_dict_config.USE_DTENSOR,
    state_dict_type.MISSING_CONFIG,
    state_dict_type.DEPRECATED,
    flat_parameter.RULE,
    type_is_flat_parameter.RULE,
    moved_flat_parameter.RULE,
    moved_fsdp_flattened.RULE,
)
RULES: tuple[Rule, ...] = (unparsable.rule(_RULES), *sorted(_RULES, key=lambda rule: rule.card.code))


def find(code_or_name: str) -> RuleCard | None:
    """The card with this code (any case) or kebab name, None when there is none."""
    wanted = code_or_name.lower()
    return next((rule.card for rule in RULES if wanted in (rule.card.code.lower(), rule.card.name)), None)
