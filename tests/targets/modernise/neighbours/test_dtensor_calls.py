from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

PARTIAL = "from torch.distributed.tensor import Partial\n"
DIST = "import torch.distributed as dist\n"
MODULE = "from torch.distributed.tensor import distribute_module\n"


@pytest.mark.parametrize("name", ["SUM", "AVG", "MIN", "MAX", "PRODUCT"])
def test_a_reduction_becomes_its_name(name: str) -> None:
    text = DIST + PARTIAL + "x = [Partial({0}), Partial(reduce_op={0})]\n"
    after = text.removeprefix(DIST).format(f'"{name.lower()}"')
    check_transformed(text.format(f"dist.ReduceOp.{name}"), after, "FSDP612", torch=">=2.5")


@pytest.mark.parametrize("op", ["ReduceOp.SUM", "getattr(ReduceOp, 'SUM')"])
def test_an_import_that_nothing_else_uses_goes(op: str) -> None:
    text = "from torch.distributed import ReduceOp\n" + PARTIAL + f"x = Partial({op})\n"
    check_transformed(text, PARTIAL + 'x = Partial("sum")\n', "FSDP612", torch=">=2.5")


@pytest.mark.parametrize("module", ["tensor.placement_types", "_tensor", "_tensor.placement_types"])
def test_every_place_of_the_placement_counts(module: str) -> None:
    text = DIST + f"from torch.distributed.{module} import Partial\nx = Partial(dist.ReduceOp.SUM)\n"
    assert [finding.severity for finding in lint(text, "FSDP612", ">=2.5")] == [Severity.BREAKS]
    assert [finding.severity for finding in lint(text, "FSDP612", ">=2.5,<2.10")] == [Severity.CHANGES]


def test_a_reduction_without_a_name_is_manual() -> None:
    check_manual(
        DIST + PARTIAL + "x = Partial(dist.ReduceOp.BXOR)\n", "FSDP612", "pass the name of a reduction", torch=">=2.5"
    )


@pytest.mark.parametrize("argument", ["", "'avg'", "operation", "*args"])
def test_other_arguments_are_left_alone(argument: str) -> None:
    check_noop(f"{DIST}{PARTIAL}x = Partial({argument})\n", "FSDP612", torch=">=2.5")
    check_noop(f"{DIST}from functools import partial as Partial\nPartial(dist.ReduceOp.SUM)\n", "FSDP612")


DEF = "def enter({}inputs, mesh):\n    return inputs\n\n"


def test_a_callback_of_the_file_gets_the_module() -> None:
    call = "distribute_module(m, mesh, f, enter, output_fn=enter)\n"
    check_transformed(MODULE + DEF.format("") + call, MODULE + DEF.format("module, ") + call, "FSDP613", torch=">=2.5")


def test_a_lambda_gets_a_name_that_is_free() -> None:
    text = MODULE + "distribute_module(m, mesh, output_fn=lambda {}out, mesh: module.f(out))\n"
    check_transformed(text.format(""), text.format("_module, "), "FSDP613", torch=">=2.5")


@pytest.mark.parametrize("other", ["enter(x, mesh)\n", "hooks = [enter]\n", "enter.x = 1\n"])
def test_a_callback_that_is_used_elsewhere_too_is_manual(other: str) -> None:
    text = MODULE + DEF.format("") + "distribute_module(m, mesh, input_fn=enter)\n" + other
    check_manual(text, "FSDP613", "used elsewhere", torch=">=2.5")


def test_a_method_as_callback_is_manual() -> None:
    text = "class T:\n    def enter(self, {}inputs, mesh): ...\n    def f(self, m, d):\n        {}\n"
    call = "distribute_module(m, d, input_fn=self.enter)"
    check_manual(MODULE + text.format("", call), "FSDP613", "the method may be called elsewhere", torch=">=2.5")
    check_noop(MODULE + text.format("module, ", call), "FSDP613", torch=">=2.5")


def test_the_older_place_has_the_callbacks_from_torch_2_3_on() -> None:
    text = "from torch.distributed._tensor import distribute_module\ndistribute_module(m, d, None, lambda i, d: i)\n"
    check_manual(text, "FSDP613", "needs torch>=2.3", torch=">=2.1")
    check_noop(text, "FSDP613", torch=">=2.1,<2.3")


@pytest.mark.parametrize(
    "text",
    [
        DEF.format("module, ") + "distribute_module(m, mesh, input_fn=enter)\n",
        "distribute_module(m, mesh, input_fn=self.enter)\n",
        "distribute_module(m, mesh, input_fn=lambda *args: args[0])\n",
        "distribute_module(m, mesh, partition_fn=lambda name, module: None)\n",
        "from x import enter\ndistribute_module(m, mesh, input_fn=enter)\n",
    ],
)
def test_other_callbacks_are_left_alone(text: str) -> None:
    check_noop(MODULE + text, "FSDP613", torch=">=2.5")


OLD_PLACE = "from torch.distributed._tensor import distribute_module\n"


@pytest.mark.parametrize("torch", [">=2.0", ">=2.1,<2.3"])
def test_a_callback_that_needs_the_module_fails_before_torch_2_3(torch: str) -> None:
    text = OLD_PLACE + DEF.format("module, ") + "distribute_module(m, mesh, input_fn=enter)\n"
    check_manual(text, "FSDP613", "require torch>=2.3", torch=torch)
    assert [finding.severity for finding in lint(text, "FSDP613", torch)] == [Severity.BREAKS]


@pytest.mark.parametrize(
    "text",
    [
        OLD_PLACE + "distribute_module(m, mesh, input_fn=lambda *args: args[0])\n",
        OLD_PLACE + "distribute_module(m, mesh, input_fn=lambda inputs, mesh, x=0: inputs)\n",
        OLD_PLACE + "import torch\nif torch.__version__ >= '2.3':\n"
        "    distribute_module(m, mesh, input_fn=lambda module, inputs, mesh: inputs)\n",
        MODULE + "distribute_module(m, mesh, input_fn=lambda module, inputs, mesh: inputs)\n",
    ],
)
def test_a_callback_that_fits_before_torch_2_3_is_left_alone(text: str) -> None:
    check_noop(text, "FSDP613", torch=">=2.0")


METHODS = """\
from torch.distributed.tensor import distribute_module


class Shards:
    @staticmethod
    def static({first}inputs, mesh):
        return inputs

    @classmethod
    def of_class(cls, {first}inputs, mesh):
        return inputs

    def method(self, {first}inputs, mesh):
        return inputs

    def go(self, model, mesh):
        distribute_module(model, mesh, input_fn={callback})
"""
CALLBACKS = ("self.static", "self.of_class", "self.method", "Shards.static", "Shards.of_class")


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_callback_may_be_a_method_of_any_kind(callback: str) -> None:
    text = METHODS.format(first="", callback=callback)
    check_manual(text, "FSDP613", "the method may be called elsewhere", torch=">=2.5")
    check_noop(METHODS.format(first="module, ", callback=callback), "FSDP613", torch=">=2.5")


def test_a_method_that_a_decorator_changes_is_left_alone() -> None:
    text = METHODS.format(first="", callback="self.static").replace("@staticmethod", "@adapted")
    check_noop(text, "FSDP613", torch=">=2.5")
