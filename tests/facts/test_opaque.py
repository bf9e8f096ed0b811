from __future__ import annotations

import ast

import pytest

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.opaque import Opaque
from fsdp_migrate.facts.version_tests import outcome
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange

HEAD = """\
import torch
import torch.distributed as dist
from importlib import metadata
from elsewhere import TORCH_2_1, flag, helper, is_torch_version
from torch.distributed import fsdp

LIMIT = 3
rank = dist.get_rank()
version = torch.__version__
try:
    from torch.distributed.tensor import DTensor
except ImportError:
    DTensor = None

class Local:
    pass

def local(x): return x

def f(self, a, b=None):
    given = a.config
    first, second = a
    new, old = (True, False) if version > "2" else (False, True)
    maybe = None
    if a:
        maybe = dist.new_group()
    for item in a:
        LIMIT
        {}
"""


def is_opaque(facts: ModuleFacts, test: ast.expr) -> bool:
    return Opaque(facts.names, facts.structure.parents).holds(test)


def facts_and_test(expression: str) -> tuple[ModuleFacts, ast.expr]:
    facts = ModuleFacts(Source(HEAD.format(expression).encode()), "x.py", TorchRange.default())
    loop = facts.structure.functions[-1].body[-1]
    assert isinstance(loop, ast.For)
    statement = loop.body[-1]
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
        "a if flag else b",
        "given.x",
        "first is second",
        "item",
        "rank == 0",
        "dist.get_rank() == 0",
        "torch.cuda.is_available()",
        "flag",
        "flag.x",
        "helper(torch.__version__)",
        "unknown",
        "unknown(torch.__version__)",
        "Local()",
        "local",
        "hasattr(a, '__version__')",
        "any(x for x in a)",
        "(c := a)",
    ],
)
def test_what_a_function_is_given_decides(expression: str) -> None:
    facts, test = facts_and_test(expression)
    assert is_opaque(facts, test)
    found = {outcome(test, release, facts.names, None).value for release in facts.torch.releases}
    assert found == {None}
    assert facts.gates.sides(test) == (facts.gates.everywhere, facts.gates.everywhere)


@pytest.mark.parametrize(
    "expression",
    [
        "torch.__version__",
        "version",
        "TORCH_2_1",
        "a.TORCH_2_1 and TORCH_2_1",
        "is_torch_version(a)",
        "metadata.version(a)",
        "fsdp",
        "fsdp.fully_shard",
        "DTensor",
        "local(a)",
        "new",
        "maybe",
        "LIMIT",
        "a and LIMIT",
        "1 < LIMIT < a",
        "a if flag else LIMIT",
        "hasattr(torch, a)",
        "hasattr(fsdp, 'fully_shard')",
        "len('x')",
        "True",
    ],
)
def test_anything_else_has_to_be_evaluated(expression: str) -> None:
    facts, test = facts_and_test(expression)
    assert not is_opaque(facts, test)
