"""The device that FSDP1 is given: FSDP2 takes the current one of the process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.called_before import surely_called
from fsdp_migrate.facts.calls import is_literal
from fsdp_migrate.facts.project_code import Code

_ACCELERATORS = ("cuda", "xpu", "npu", "mtia", "hpu")
_CURRENT = frozenset(
    (
        *(f"torch.{name}.current_device" for name in _ACCELERATORS),
        "torch.accelerator.current_device_index",
        "torch.accelerator.current_device_idx",
    )
)
_SETTING = frozenset(
    (
        *(f"torch.{name}.set_device" for name in _ACCELERATORS),
        "torch.accelerator.set_device_index",
        "torch.accelerator.set_device_idx",
    )
)
_DEVICE = "torch.device"
_MOST_STEPS = 30


class Device(Enum):
    """Which device an argument stands for."""

    CURRENT = "current"  # what FSDP2 takes by itself
    CPU = "cpu"
    OTHER = "other"


def read_device(facts: ModuleFacts, given: ast.expr | None, call: ast.Call, code: Code) -> Device:
    """The device that `device_id` is."""
    if given is None or is_literal(given, None):
        return Device.CURRENT
    kinds = {_kind(*one) for one in alternatives(facts, given)}
    if kinds == {Device.CPU}:
        return Device.CPU
    # The CPU where there is no accelerator is what FSDP2 falls back to as well.
    if kinds <= {Device.CURRENT, Device.CPU} or surely_called(facts, call, _SETTING, code):
        return Device.CURRENT
    return Device.OTHER


def alternatives(facts: ModuleFacts, node: ast.expr) -> Iterator[tuple[ModuleFacts, ast.expr]]:
    """What an expression may be, through names and conditions."""
    waiting = [(facts, node)]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        home, one = waiting.pop()
        if isinstance(one, ast.IfExp):
            waiting += [(home, one.body), (home, one.orelse)]
            continue
        found = list(_bound(home, one)) if isinstance(one, ast.Name) else []
        if found:
            waiting += found
        else:
            yield home, one
    yield from waiting


def _bound(facts: ModuleFacts, name: ast.Name) -> Iterator[tuple[ModuleFacts, ast.expr]]:
    """What a name is bound to, in this module or where it is imported from; nothing where that is not all visible."""
    values, full = facts.names.definitions(name), facts.names.qualified(name)
    if not values and full is not None and facts.project is not None:
        found = facts.project.definition(full)
        if found is not None and all(one.value is not None for one in found[1]):
            facts, values = found[0], [one.value for one in found[1] if one.value is not None]
    yield from ((facts, value) for value in values)


def _kind(facts: ModuleFacts, node: ast.expr) -> Device:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _by_name(node.value)
    called = facts.names.qualified(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or called is None:
        return Device.OTHER
    if called in _CURRENT:
        return Device.CURRENT
    if called != _DEVICE or not node.args or node.keywords:
        return Device.OTHER
    first, *index = node.args
    if not index:
        return _kind(facts, first)
    return Device.CURRENT if _kind(facts, index[0]) is Device.CURRENT else Device.OTHER


def _by_name(name: str) -> Device:
    if name == "cpu":
        return Device.CPU
    return Device.CURRENT if name in _ACCELERATORS else Device.OTHER
