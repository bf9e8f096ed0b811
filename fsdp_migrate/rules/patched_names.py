"""Names of torch that a file puts something else in the place of: by assignment, `setattr`, or as tests patch them.

What the file calls by such a name is no longer torch's, and torch's own successor is not what takes its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.facts.names import canonical

_BY_OWNER = frozenset({"setattr", "delattr", "object"})
_BY_PATH = frozenset({"patch", "setattr", "delattr"})


def replaced_at(facts: ModuleFacts, node: object) -> str | None:
    """The line that puts something else in the place of what the attribute `node` reads, None when none does.

    Other modules of the project count where they do so by assignment; what tests patch is back when they are done.
    """
    if not isinstance(node, ast.Attribute):
        return None
    # What has no name of its own may still be a method that a model has from FSDP.
    name = facts.names.qualified(node) or f"{FSDP}.{node.attr}"
    line = _lines(facts, True).get(name)
    return _replaced_elsewhere(facts, name) if line is None else f"line {line}"


def _replaced_elsewhere(facts: ModuleFacts, name: str) -> str | None:
    project = facts.project
    if project is None or not name.startswith("torch."):
        return None
    for other, shown in project.setters(name.rpartition(".")[2]):
        line = _lines(other, False).get(name)
        if line is not None:
            return f"{shown}:{line}"
    return None


def _lines(facts: ModuleFacts, patches: bool) -> dict[str, int]:
    """The full names that a module replaces, with the lines where; those that tests patch only if asked for."""
    return facts.memo((_lines, patches), lambda: dict(reversed(list(_replaced(facts, patches)))))


def _replaced(facts: ModuleFacts, patches: bool) -> Iterator[tuple[str, int]]:
    for node in facts.structure.attributes:
        if isinstance(node.ctx, ast.Load) or (owner := _owner(facts, node.value)) is None:
            continue
        if facts.reached(node):
            yield canonical(f"{owner}.{node.attr}"), node.lineno
    for constant in facts.structure.strings:
        call = facts.structure.parents[constant]
        if not isinstance(constant.value, str) or not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", None))
        if name in _BY_PATH and call.args[:1] == [constant] and patches:
            yield canonical(constant.value), constant.lineno
        lasts = name in _BY_OWNER and (patches or isinstance(call.func, ast.Name))
        if lasts and call.args[1:2] == [constant] and (owner := _owner(facts, call.args[0])) is not None:
            yield canonical(f"{owner}.{constant.value}"), constant.lineno


def _owner(facts: ModuleFacts, node: ast.expr) -> str | None:
    return facts.names.qualified(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
