from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.opaque import is_opaque
from fsdp_migrate.facts.version_tests import outcome
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

HEAD = """\
import torch
from elsewhere import flag, helper

LIMIT = 3

def local(x): return x

def f(self, a, b=None):
    LIMIT
    {}
"""


def facts_and_test(expression: str) -> tuple[ModuleFacts, ast.expr]:
    facts = ModuleFacts(Source(HEAD.format(expression).encode()), "x.py", TorchRange.default())
    (statement,) = facts.structure.functions[-1].body[1:]
    assert isinstance(statement, ast.Expr)
    return facts, statement.value


@pytest.mark.parametrize(
    "expression",
    [
        "a",
        "not a",
        "self.training",
        "self.x.y(torch.__version__)",
        "a is None",
        "3 < a",
        "a and b",
        "isinstance(torch, a)",
        "len(a)",
        "a[0]",
        "a + 1",
        "lambda: 1",
        "(not a.b) or b",
    ],
)
def test_what_a_function_is_given_decides(expression: str) -> None:
    facts, test = facts_and_test(expression)
    assert is_opaque(test, facts.names.bindings)
    found = {outcome(test, release, facts.names, None).value for release in facts.torch.releases}
    assert found == {None}
    assert facts.gates.sides(test) == (facts.gates.everywhere, facts.gates.everywhere)


@pytest.mark.parametrize(
    "expression",
    [
        "torch.__version__",
        "flag",
        "helper(a)",
        "local(a)",
        "LIMIT",
        "a and flag",
        "1 < LIMIT < a",
        "a if flag else b",
        "hasattr(torch, a)",
        "len('x')",
        "True",
        "unknown",
    ],
)
def test_anything_else_has_to_be_evaluated(expression: str) -> None:
    facts, test = facts_and_test(expression)
    assert not is_opaque(test, facts.names.bindings)
