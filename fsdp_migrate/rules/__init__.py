"""All rules, by code."""

from __future__ import annotations

from fsdp_migrate.rules import (
    activation_checkpoint,
    amp,
    c10d,
    constructor,
    dead_gate,
    flat_parameter,
    fully_sharded,
    launch,
    legacy_cards,
    loading,
    lost_state,
    methods,
    missing_names,
    moved_cards,
    moved_flat_parameter,
    moved_fsdp_flattened,
    name_prefixes,
    optim_input,
    policy_parameter,
    removed_hooks,
    sharded_scaler,
    state_dict_config,
    state_dict_type,
    to_load_order,
    type_is_flat_parameter,
    unaccepted_arguments,
    unparsable,
    wrap_policies,
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
    unaccepted_arguments.RULE,
    missing_names.RULE,
    *moved_cards.RULES,
    name_prefixes.WRAPPERS,
    name_prefixes.CHECKPOINT,
    policy_parameter.RULE,
    wrap_policies.DEFAULT_POLICY,
    wrap_policies.BASE_CLASS,
    wrap_policies.EXEC_ORDER,
    wrap_policies.RECURSIVE_WRAP,
    wrap_policies.MOVED_OR_POLICY,
    constructor.OLD_POLICY_ARGUMENT,
    constructor.IGNORED_PARAMETERS,
    constructor.POSITIONS,
    constructor.UNSHARDED,
    constructor.DEFAULTS,
    methods.CLIPPING,
    methods.SUMMONING,
    fully_sharded.DIVIDE_FACTOR,
    fully_sharded.RECURSE,
    fully_sharded.RESHARD_ROOT,
    amp.AUTOCAST,
    amp.SCALER,
    amp.CUSTOM,
    sharded_scaler.RULE,
    *c10d.RULES,
    *launch.RULES,
    *activation_checkpoint.RULES,
    loading.RULE,
)
# What says nothing about FSDP makes no file worth a look of its own.
_OWN = tuple(rule for rule in _RULES if not rule.neighbour)
RULES: tuple[Rule, ...] = (
    unparsable.rule(_OWN),
    *sorted([*_RULES, dead_gate.rule(_OWN)], key=lambda rule: rule.card.code),
)


def find(code_or_name: str) -> RuleCard | None:
    """The card with this code (any case) or kebab name, None when there is none."""
    wanted = code_or_name.lower()
    return next((rule.card for rule in RULES if wanted in (rule.card.code.lower(), rule.card.name)), None)
