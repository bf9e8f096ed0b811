"""FSDP901 and FSDP902: what stands on the wrong side of `fully_shard`, or is missing behind it."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop

IMPORT = "import torch\nfrom torch import optim\nfrom torch.distributed.fsdp import fully_shard\n\n"
BUILD = "opt = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
SHARD = "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"


@pytest.mark.parametrize(
    "text",
    [
        BUILD + SHARD,
        BUILD + "model = fully_shard(model)\n",
        "opt = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)\n" + SHARD,
        "opt = optim.SGD(params=model.parameters(), lr=0.1)\nif sharded:\n    fully_shard(model, mesh=mesh)\n",
        "class T:\n    def build(self):\n        self.opt = optim.AdamW(self.model.parameters())\n"
        "        fully_shard(self.model)\n",
    ],
)
def test_an_optimizer_from_before_is_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP901", "after `fully_shard`", torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        SHARD + BUILD,
        BUILD + SHARD + BUILD,
        BUILD + SHARD + "opt.param_groups[0]['params'] = list(model.parameters())\n",
        "if old:\n    " + BUILD + "else:\n    fully_shard(model)\n",
        BUILD + "fully_shard(other)\n",
        BUILD + "model = build()\nfully_shard(model)\n",
        BUILD + "def shard(model):\n    fully_shard(model)\n",
    ],
)
def test_another_order_another_model_and_new_parameters_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP901", torch=">=2.6")


RUN = "loss = model(batch).sum()\n"
EMPTY = "fully_shard(model)\nmodel.to_empty(device='cuda')\n"


@pytest.mark.parametrize("between", ["", "model.train()\n", BUILD, "print(model)\n"])
def test_a_model_that_runs_behind_to_empty_is_found(between: str) -> None:
    check_manual(IMPORT + EMPTY + between + RUN, "FSDP902", "load a state dict", torch=">=2.6")


@pytest.mark.parametrize(
    "between",
    [
        "model.init_weights()\n",
        "model.apply(init)\n",
        "load(model, path)\n",
        "for p in model.parameters():\n    p.fill_(0)\n",
        "for m in model.modules():\n    m.reset_parameters()\n",
        "init = model.reset\n",
        "trainer.model = model\n",
        "if path:\n    model.load_state_dict(torch.load(path))\n",
    ],
)
def test_a_model_that_may_have_got_values_is_left(between: str) -> None:
    check_noop(IMPORT + EMPTY + between + RUN, "FSDP902", torch=">=2.6")


def test_a_model_that_goes_elsewhere_is_left() -> None:
    check_noop(IMPORT + "def build(model):\n    " + EMPTY.replace("\nm", "\n    m") + "    return model\n", "FSDP902")
    check_noop(IMPORT + "model.to_empty(device='cuda')\n" + RUN, "FSDP902", torch=">=2.6")
