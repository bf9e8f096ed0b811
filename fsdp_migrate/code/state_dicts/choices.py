"""What to choose from where the type or its config is decided at run time, spelled out for the user."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fsdp_migrate.code.state_dicts.calls import StateCall
from fsdp_migrate.code.state_dicts.mapping import LOAD_OPTIMIZER, OPTIONS, row_for
from fsdp_migrate.code.state_dicts.settings import FULL, SHARDED, InForce, Wanted

_ON_RANK_0, _EVERYWHERE = Wanted(True, True), Wanted(False, False)
_ON_CPU = Wanted(True, False)
_CASES = (
    (f"{FULL} on rank 0", InForce(FULL, _ON_RANK_0, _ON_RANK_0)),
    (f"{FULL} on every rank", InForce(FULL, _EVERYWHERE, _EVERYWHERE)),
    (f"{SHARDED} on the device", InForce(SHARDED, _EVERYWHERE, _EVERYWHERE)),
    (f"{SHARDED} on the CPU", InForce(SHARDED, _ON_CPU, _ON_CPU)),
)


def choices(calls: Sequence[StateCall], type_name: str | None) -> str:
    """The new calls, and their options for each type and config that may be meant.

    `type_name` is the type where that is certain.
    """
    asking = [call for call in calls if call.own is None]
    by_options: dict[str, list[str]] = {}
    for name, settings in _CASES:
        if type_name in (None, settings.type_name):
            by_options.setdefault(_options(asking, settings), []).append(name)
    written = " and ".join(dict.fromkeys(map(_text, asking)))
    return f"{written} with {', '.join(f'{text} for {_named(names)}' for text, names in by_options.items())}"


def _named(names: Sequence[str]) -> str:
    types = dict.fromkeys(name.split()[0] for name in names)
    return names[0] if len(names) == 1 else " or ".join(types)


def _options(calls: Sequence[StateCall], settings: InForce) -> str:
    """The options of the calls, each once, in their order."""
    every = dict.fromkeys(row_for(call.function, settings).options for call in calls)
    return " and ".join(f"`{OPTIONS}({', '.join(fields)})`" if fields else "none" for fields in every)


def _text(call: StateCall) -> str:
    parts = [ast.unparse(part) for part in (call.module, call.optimizer) if part is not None]
    if call.state is not None:
        keyword = "optim_state_dict=" if call.function == LOAD_OPTIMIZER else ""
        parts.append(f"{keyword}{ast.unparse(call.state)}")
    return f"`{call.function}({', '.join(parts)}, options=...)`"
