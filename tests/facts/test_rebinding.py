from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.rebinding import changed_between, place_of
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange


def changed(between: str, expression: str = "self.model") -> bool:
    """Whether an expression means something else after some code, all of it on one line of a function."""
    text = f"def f(self, model, key):\n    first({expression}); {between}; last({expression})\n"
    facts = ModuleFacts(Source(text.encode()), "a.py", TorchRange.default())
    first, last = (
        next(call for call in facts.structure.calls if ast.unparse(call.func) == name) for name in ("first", "last")
    )
    here, there = place_of(first), place_of(last)
    found = changed_between(facts, first.args[0], here, there)
    assert changed_between(facts, first.args[0], there, here) is found
    return found


@pytest.mark.parametrize(
    ("between", "expression"),
    [
        ("self.model = wrap(key)", "self.model"),
        ("self = key", "self.model"),
        ("del self.model", "self.model"),
        ("self.model = 1", "self.model.module"),
        ("self.parts[key] = 1", "self.parts[key]"),
        ("key = 1", "self.parts[key]"),
        ("model = wrap(model)", "model"),
        ("(model := key)", "model"),
        ("model += 1", "model"),
        ("import model", "model"),
    ],
)
def test_what_is_bound_or_assigned_in_between_is_another(between: str, expression: str) -> None:
    assert changed(between, expression)


@pytest.mark.parametrize(
    ("between", "expression"),
    [
        ("self.model.eval()", "self.model"),
        ("self.model.x = 1", "self.model"),
        ("self.other = 1", "self.model"),
        ("key.model = 1", "self.model"),
        ("self.parts[0] = 1", "self.parts[key]"),
        ("use(model)", "model"),
        ("g = lambda model: model", "model"),
    ],
)
def test_what_is_only_used_in_between_is_the_same(between: str, expression: str) -> None:
    assert not changed(between, expression)


def test_what_comes_before_or_behind_does_not_count() -> None:
    text = "def f(model):\n    model = 1; first(model); last(model); model = 2\n"
    facts = ModuleFacts(Source(text.encode()), "a.py", TorchRange.default())
    first, last = facts.structure.calls
    assert not changed_between(facts, first.args[0], place_of(first), place_of(last))
