"""FSDP904 and FSDP906: members of FSDP1 asked of a model under `fully_shard`, and files with the rows of one rank."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop

IMPORT = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP, fully_shard\n\n"
)
SHARD = "fully_shard(model)\n"


@pytest.mark.parametrize(
    ("use", "way"),
    [
        ("with model.no_sync(): step()", "set_requires_gradient_sync"),
        ("model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_"),
        ("inner = model.module", "the model itself"),
        ("inner = model._fsdp_wrapped_module", "the model itself"),
        ("isinstance(model, FSDP)", "test for `FSDPModule`"),
        ("getattr(model, 'no_sync', nullcontext)", "set_requires_gradient_sync"),
        ("units = FSDP.fsdp_modules(model)", "look for `FSDPModule`"),
        ("with FSDP.summon_full_params(model): read()", "full_tensor"),
        ("with FSDP.state_dict_type(model, kind): save()", "get_model_state_dict"),
    ],
)
def test_what_fsdp1_had_is_found(use: str, way: str) -> None:
    check_manual(f"{IMPORT}{SHARD}{use}\n", "FSDP904", way, torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        "def f(model):\n    return model.no_sync() if isinstance(model, FSDP) else nothing()\n",
        "if version == 2:\n    fully_shard(model)\nelse:\n    model = FSDP(model)\nmodel.clip_grad_norm_(1.0)\n",
        "fully_shard(model)\nmodel = FSDP(other)\nmodel.clip_grad_norm_(1.0)\n",
        "fully_shard(model)\nassert isinstance(model, (FSDP, FSDPModule))\n",
        "fully_shard(model)\nother.module.run()\n",
        "class Net:\n    def no_sync(self): ...\n\n\nfully_shard(model)\nmodel.no_sync()\n",
        "fully_shard(model)\ngetattr(model, 'config', None)\n",
    ],
)
def test_code_for_both_and_other_models_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP904", torch=">=2.6")


SAVE = "if dist.get_rank() == 0:\n    torch.save({}, 'model.pt')\n"


@pytest.mark.parametrize("saved", ["model.state_dict()", "{'model': model.state_dict(), 'step': 3}"])
def test_a_sharded_state_dict_that_rank_0_saves_is_found(saved: str) -> None:
    check_manual(IMPORT + SHARD + SAVE.format(saved), "FSDP906", "full_state_dict=True", torch=">=2.6")


def test_a_sharded_state_dict_that_has_a_name_is_found() -> None:
    text = f"{IMPORT}{SHARD}weights = model.state_dict()\n{SAVE.format('weights')}"
    check_manual(text, "FSDP906", "on every rank", torch=">=2.6")


@pytest.mark.parametrize(
    "text",
    [
        SHARD + "torch.save(model.state_dict(), f'{dist.get_rank()}.pt')\n",
        SAVE.format("model.state_dict()") + SHARD,
        SHARD + SAVE.format("other.state_dict()"),
        SHARD + SAVE.format("{k: v.full_tensor() for k, v in model.state_dict().items()}"),
    ],
)
def test_other_saves_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP906", torch=">=2.6")
