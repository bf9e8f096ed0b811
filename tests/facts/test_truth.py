from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.truth import Role, standing, where_held
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange


def parsed(text: str) -> tuple[ModuleFacts, ast.Call]:
    """The facts of a program and its call of `test`."""
    facts = ModuleFacts(Source(text.encode()), "example.py", TorchRange.parse(">=2.1"))
    (call,) = (call for call in facts.structure.calls if isinstance(call.func, ast.Name) and call.func.id == "test")
    return facts, call


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("if test(x): pass", Role.DECIDES),
        ("y = 1 if test(x) else 2", Role.DECIDES),
        ("y = any(test(x) for x in xs)", Role.DECIDES),
        ("y = [x for x in xs if test(x)]", Role.DECIDES),
        ("y = filter(lambda x: test(x), xs)", Role.DECIDES),
        ("y = itertools.takewhile(lambda x: test(x), xs)", Role.PASSED_ON),
        ("import itertools\ny = itertools.takewhile(lambda x: test(x), xs)", Role.DECIDES),
        ("def f(x): return test(x)", Role.RETURNED),
        ("f = lambda x: test(x)", Role.RETURNED),
        ("if not any(test(x) for x in xs): pass", Role.NEGATED),
        ("y = next((x for x in xs if test(x)), None) is None", Role.NEGATED),
        ("assert test(x) or y", Role.ASSERTED),
        ("self.assertIn(x, [x for x in xs if test(x)])", Role.ASSERTED),
        ("y = test(x) == test_other(x)", Role.COMPARED),
        ("y = sum(test(x) for x in xs)", Role.COUNTED),
        ("assert sum(1 for x in xs if test(x)) == 2", Role.COUNTED),
        ("y = len([test(x) for x in xs])", Role.PASSED_ON),
        ("y = -test(x)", Role.PASSED_ON),
        ("test(x)", Role.PASSED_ON),
    ],
)
def test_what_a_truth_value_is_used_for(text: str, role: Role) -> None:
    assert standing(*parsed(text)).role is role


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("y = list(x for x in xs if test(x))", "(x for x in xs if test(x))"),
        ("y = {x: 1 for x in xs if z and test(x)}", "{x: 1 for x in xs if z and test(x)}"),
        ("y = list(filter(lambda x: test(x), xs))", "filter(lambda x: test(x), xs)"),
        ("y = any(test(x) for x in xs)", None),
    ],
)
def test_what_a_condition_selects(text: str, selection: str | None) -> None:
    found = standing(*parsed(text)).selection
    assert (None if found is None else ast.unparse(found)) == selection


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("if test(x):\n    a\nelse:\n    b\nc", ["a"]),
        ("if not test(x):\n    a\nelse:\n    b\nc", ["b"]),
        ("if test(x) is False:\n    a\nelse:\n    b\nc", ["b"]),
        ("if y and test(x) and z:\n    a", ["z", "a"]),
        ("if not test(x) or z:\n    a", ["z"]),
        ("for x in xs:\n    if not test(x):\n        continue\n    a\n    b", ["a", "b"]),
        ("for x in xs:\n    if test(x):\n        a\n    else:\n        break\n    b", ["a", "b"]),
        ("assert test(x)\na", ["a"]),
        ("while test(x):\n    a\nb", ["a"]),
        ("y = a if test(x) else b", ["a"]),
        ("y = [a for x in xs if test(x) if b for z in c]", ["b", " for z in c", "a"]),
        ("y = {a: b for x in xs if test(x)}", ["a", "b"]),
        ("y = test(x)\na", []),
    ],
)
def test_where_a_test_is_known_to_have_held(text: str, held: list[str]) -> None:
    assert [ast.unparse(node) for node in where_held(*parsed(text))] == held
