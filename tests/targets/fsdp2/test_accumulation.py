"""`no_sync` becomes a small function around `set_requires_gradient_sync`."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.converted import Converted, check_wall

FUNCTION = """\
@contextmanager
def no_sync(model):
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


"""
BUILT = "model = FSDP(Net())\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with model.no_sync():\n    pass", "with no_sync(model):\n    pass"),
        (
            "with contextlib.nullcontext() if last else model.no_sync():\n    pass",
            "with contextlib.nullcontext() if last else no_sync(model):\n    pass",
        ),
        ("stack.enter_context(model.no_sync())", "stack.enter_context(no_sync(model))"),
        ("maybe = model.no_sync if skip else nullcontext", "maybe = partial(no_sync, model) if skip else nullcontext"),
        ('maybe = getattr(model, "no_sync", nullcontext)', "maybe = partial(no_sync, model)"),
        ('with getattr(model, "no_sync")():\n    pass', "with no_sync(model):\n    pass"),
        ("with model.no_sync(  # not now\n):\n    pass", "with no_sync(model  # not now\n):\n    pass"),
        ('if hasattr(model, "no_sync"):\n    pass', "if isinstance(model, FSDPModule):\n    pass"),
    ],
)
def test_each_way_to_skip_the_reduction(before: str, after: str) -> None:
    found = Converted(f"from functools import partial\nfrom contextlib import contextmanager\n{BUILT}{before}\n")
    assert found.walls == found.differences == []
    assert found.text.endswith(f"{BUILT}{after}\n") or found.text.endswith(f"{BUILT}{FUNCTION}{after}\n")


def test_the_function_stands_once_in_front_of_the_first_definition() -> None:
    found = Converted(
        """

        # Trains for one step.
        @decorated
        def train(model):
            with model.no_sync():
                pass
            with model.no_sync():
                pass
        """
    )
    assert found.text == (
        "from contextlib import contextmanager\n\n\n"
        + FUNCTION
        + """\
# Trains for one step.
@decorated
def train(model):
    with no_sync(model):
        pass
    with no_sync(model):
        pass
"""
    )


@pytest.mark.parametrize(
    ("policy", "exact"),
    [
        ("None", True),
        ("MixedPrecision(param_dtype=torch.bfloat16)", True),
        ("MixedPrecision(torch.bfloat16, torch.bfloat16)", True),
        ("MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)", False),
        ("MixedPrecision(reduce_dtype=torch.bfloat16)", False),
        ("policy_of(args)", False),
    ],
)
def test_sums_are_exact_where_the_dtypes_are_the_same(policy: str, exact: bool) -> None:
    found = Converted(
        "from torch.distributed.fsdp import MixedPrecision\n"
        f"model = FSDP(Net(), mixed_precision={policy})\n"
        "with model.no_sync():\n    pass\n"
    )
    assert found.walls == []
    assert (found.differences == []) is exact


DDP = """\
from torch.nn.parallel import DistributedDataParallel
if args.fsdp:
    model = FSDP(Net())
else:
    model = DistributedDataParallel(Net())
"""


def test_a_ddp_model_in_the_same_variable_is_a_wall() -> None:
    check_wall(
        f"{DDP}with model.no_sync():\n    pass\n", "also be a DDP model", others=("DistributedDataParallel(Net())",)
    )


@pytest.mark.parametrize("test", ["args.fsdp and not last", "isinstance(model, FSDP)"])
def test_unless_a_test_keeps_it_out(test: str) -> None:
    found = Converted(
        f"{DDP}if {test}:\n    with model.no_sync():\n        pass\n", others=("DistributedDataParallel(Net())",)
    )
    assert found.walls == []


def test_a_plain_model_has_no_such_method() -> None:
    found = Converted("model = FSDP(Net()) if big else nn.Linear(1, 1)\nmodel.no_sync()\n", others=("nn.Linear(1, 1)",))
    assert found.walls == []


EITHER = """\
if args.fsdp:
    model = FSDP(nn.Linear(1, 1), use_orig_params=True)
else:
    model = nn.Linear(1, 1)
"""


@pytest.mark.parametrize(
    "program",
    [
        "if args.fsdp:\n    pass\nelse:\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "if not args.fsdp:\n    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "def f(model):\n    if args.fsdp:\n        return\n    x = nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ],
)
def test_an_arm_for_other_models_is_left_alone(program: str) -> None:
    found = Converted(f"{EITHER}{program}\n", others=("nn.Linear(1, 1)",))
    assert found.walls == found.differences == []
    assert found.text == f"{EITHER}{program}\n"


def test_a_norm_may_be_of_a_plain_model() -> None:
    program = f"{EITHER}loss.backward()\nnorm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    found = Converted(program, others=("nn.Linear(1, 1)",))
    assert found.walls == []
    assert found.text.endswith("norm = whole(nn.utils.clip_grad_norm_(model.parameters(), 1.0))\n")
