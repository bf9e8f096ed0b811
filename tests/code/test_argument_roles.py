from __future__ import annotations

import ast

import pytest

from fsdp_migrate.code.argument_roles import has_effect, is_group, is_optim_input
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange


def argument(text: str) -> tuple[ModuleFacts, ast.expr]:
    """The argument of the `call(...)` that ends a program."""
    facts = ModuleFacts(Source(text.encode()), "a.py", TorchRange.default())
    (call,) = (call for call in facts.structure.calls if ast.unparse(call.func) == "call")
    return facts, call.args[0]


@pytest.mark.parametrize(
    "text",
    [
        "call(group)",
        "call(process_group)",
        "call(self.dp_group)",
        "call(pg)",
        "call(_PG)",
        "call(sync_subgroup)",
        "call(dist.group.WORLD)",
        "call(c10d._get_default_group())",
        "call(dist.new_group([0, 1]))",
        "call(mesh['dp'].get_group())",
        "x = dist.new_group()\ncall(x)",
        "x = dist.group.WORLD\ncall(x)",
        "process_group = setup()\ncall(process_group)",
    ],
)
def test_a_group_is_known_by_its_name_or_by_what_made_it(text: str) -> None:
    assert is_group(*argument(text))


@pytest.mark.parametrize(
    "text",
    [
        "call(optim)",
        "call(group_optimizer)",
        "call(groups)",
        "call(param_group)",
        "call(parameter_group)",
        "call(group[0])",
        "x = setup()\ncall(x)",
        "x = dist.new_group()\nif y:\n    x = optim\ncall(x)",
        "call(None)",
    ],
)
def test_anything_else_is_no_group(text: str) -> None:
    assert not is_group(*argument(text))


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("model.parameters()", True),
        ("self.net.named_parameters()", True),
        ("params", True),
        ("trainable_params", True),
        ("self.optim_input", True),
        ("param_groups", True),
        ("parameters()", False),
        ("model.buffers()", False),
        ("paramsx", False),
        ("optim", False),
    ],
)
def test_what_an_optimizer_was_built_from_is_known_by_its_name(text: str, known: bool) -> None:
    assert is_optim_input(argument(f"call({text})")[1]) is known


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("params", False),
        ("model.parameters()", False),
        ("list(model.parameters())", False),
        ("[p for p in model.parameters()]", False),
        ("build(model)", True),
        ("[build(p) for p in model.parameters()]", True),
        ("lambda: build(model)", False),
    ],
)
def test_what_would_be_missed_is_a_call_that_may_do_something(text: str, effect: bool) -> None:
    assert has_effect(*argument(f"call({text})")) is effect
