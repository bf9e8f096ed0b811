"""Calls of FSDP1's class that are written out become calls of `fully_shard`."""

from __future__ import annotations

import pytest

from tests.targets.fsdp2.building import converted, facts_of, rewritten

IMPORTS = """\
import functools
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy, lambda_auto_wrap_policy


"""


def body(text: str) -> str:
    """What is left of a program behind its imports and the two empty lines."""
    return text.partition("\n\n\n")[2]


def test_a_model_without_a_policy_is_sharded_in_place() -> None:
    assert body(rewritten(IMPORTS + "model = FSDP(model, use_orig_params=True)\n")) == "fully_shard(model)\n"


def test_a_class_policy_becomes_a_loop() -> None:
    text = (
        "def f(model):\n    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({A, nn.Linear}))\n    return model\n"
    )
    assert body(rewritten(IMPORTS + text)) == (
        "def f(model):\n"
        "    for module in reversed(list(model.modules())):  # children before their parents\n"
        "        if module is not model and isinstance(module, (A, nn.Linear)):\n"
        "            fully_shard(module)\n"
        "    fully_shard(model)\n"
        "    return model\n"
    )


@pytest.mark.parametrize(
    ("strategy", "keywords"),
    [
        ("", ""),
        (", sharding_strategy=None", ""),
        (", sharding_strategy=ShardingStrategy.FULL_SHARD", ""),
        (", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", ", reshard_after_forward=False"),
        (", device_mesh=mesh", ", mesh=mesh"),
    ],
)
def test_strategies_become_arguments(strategy: str, keywords: str) -> None:
    text = rewritten(f"{IMPORTS}model = FSDP(model{strategy})\n")
    assert body(text) == f"fully_shard(model{keywords})\n"


def test_what_a_call_makes_gets_its_name_first() -> None:
    text = "model = FSDP(\n    Stack(\n        4,\n    ),\n    use_orig_params=True,\n)\n"
    assert body(rewritten(IMPORTS + text)) == "model = Stack(\n    4,\n)\nfully_shard(model)\n"


def test_a_returned_model_is_sharded_first() -> None:
    text = "def f(m):\n    return FSDP(module=m)\n\n\ndef g():\n    return FSDP(Stack())\n"
    assert body(rewritten(IMPORTS + text)) == (
        "def f(m):\n    fully_shard(m)\n    return m\n\n\n"
        "def g():\n    model = Stack()\n    fully_shard(model)\n    return model\n"
    )


def test_precision_becomes_a_policy_for_the_root_and_one_below() -> None:
    mp = "MixedPrecision(param_dtype=torch.bfloat16)"
    text = f"model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{A}}), mixed_precision={mp})\n"
    assert body(rewritten(IMPORTS + text)).splitlines()[:2] == [
        "mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
        "inner_mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, "
        "cast_forward_inputs=False)  # FSDP1 casts the inputs of the root only",
    ]


def test_a_floor_that_is_too_low_is_a_wall() -> None:
    conversion = converted({"train.py": facts_of(IMPORTS + "model = FSDP(model)\n", ">=2.4")})
    (wall,) = conversion.walls
    assert wall.reason == "`torch.distributed.fsdp.fully_shard` came with torch 2.6, but torch>=2.4 is supported"
