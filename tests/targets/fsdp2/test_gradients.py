"""FSDP905 and FSDP908: gradients of FSDP2 that are reduced on one rank alone, or on none."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop

IMPORT = "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n"
SHARD = "fully_shard(model)\n"
LOOP = "for name, p in model.named_parameters():\n"


@pytest.mark.parametrize(
    "read",
    ["p.grad.norm().item()", "float(p.grad.norm(2))", "p.detach().sum().item()", "(p.norm()).detach().item()"],
)
def test_a_number_of_one_sharded_tensor_is_found(read: str) -> None:
    check_manual(f"{IMPORT}{SHARD}{LOOP}    log({read})\n", "FSDP905", "full_tensor", torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        SHARD + LOOP + "    log(p.grad.full_tensor().norm().item())\n",
        SHARD + LOOP + "    log(p.grad.norm().full_tensor().item())\n",
        SHARD + LOOP + "    log(p.to_local().norm().item())\n",
        SHARD + LOOP + "    p = gather(p)\n    log(p.norm().item())\n",
        SHARD + "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nlog(norm.item())\n",
        SHARD + "for p in other.parameters():\n    log(p.norm().item())\n",
        LOOP + "    log(p.norm().item())\n",
        SHARD + LOOP + "    log(p.step.item())\n",
    ],
)
def test_whole_tensors_and_other_models_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP905", torch=">=2.6")


OFF = "model.set_requires_gradient_sync(False)\n"
TRAIN = "model(batch).sum().backward()\noptimizer.step()\n"


def test_sync_that_is_never_turned_on_is_found() -> None:
    check_manual(IMPORT + OFF + TRAIN, "FSDP908", "before the backward pass of the last", torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        OFF + TRAIN + "model.set_requires_gradient_sync(True)\n",
        OFF + "model.set_requires_gradient_sync(is_last)\n" + TRAIN,
        OFF + "on = model.set_requires_gradient_sync\n" + TRAIN,
        OFF + "getattr(model, 'set_requires_gradient_sync')(True)\n" + TRAIN,
        "model.head.set_requires_gradient_sync(False, recurse=False)\n" + TRAIN,
        "def off(model):\n    " + OFF,
    ],
)
def test_sync_that_may_be_turned_on_is_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP908", torch=">=2.6")
