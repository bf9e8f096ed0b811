"""FSDP717: full state dicts that go into sharded models as they are."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = """\
import os
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

"""
BUILT = "model = FSDP(net)\n"
SHARDED = "fully_shard(model)\n"
FULL = "StateDictOptions(full_state_dict=True)"
SET = "set_model_state_dict(model, weights)\n"
LOAD = "model.load_state_dict(weights)\n"


@pytest.mark.parametrize(
    "read",
    [
        f"weights = get_model_state_dict(other, options={FULL})\n",
        "weights = load_file(path)\n",
        "weights = torch.load('model.pt')\n",
        "folder = 'checkpoints'\nweights = torch.load(os.path.join(folder, 'model.pt'), mmap=True)\n",
        "file = torch.load('model.pt')\nweights = file['model']\n",
        f"file = {{'model': get_model_state_dict(other, options={FULL})}}\nweights = file['model']\n",
    ],
)
def test_a_full_dict_for_shards_is_found(read: str) -> None:
    check_manual(IMPORT + BUILT + read + SET, "FSDP717", "full_state_dict=True")
    check_manual(IMPORT + SHARDED + read + SET, "FSDP717", "full_state_dict=True", torch=">=2.6")
    check_manual(IMPORT + SHARDED + read + LOAD, "FSDP717", "before `fully_shard`", torch=">=2.6")


def test_assigned_tensors_take_the_place_of_the_shards() -> None:
    read = "weights = torch.load('model.pt')\n"
    (found,) = lint(IMPORT + SHARDED + read + LOAD.replace("(weights)", "(weights, assign=True)"), "FSDP717", ">=2.6")
    assert "replace its shards" in found.message


@pytest.mark.parametrize(
    "text",
    [
        BUILT + "weights = torch.load(path)\n" + SET,
        BUILT + "weights = torch.load(f'model-{rank}.pt')\n" + SET,
        BUILT + "weights = get_model_state_dict(other)\n" + SET,
        BUILT + f"weights = load_file(path)\nset_model_state_dict(model, weights, options={FULL})\n",
        BUILT + "weights = load_file(path)\nset_model_state_dict(model, weights, options=options)\n",
        BUILT + "weights = load_file(path)\nweights['a'] = shard\n" + SET,
        BUILT + "weights = load_file(path)\nweights = {k: cut(v) for k, v in weights.items()}\n" + SET,
        BUILT + "weights = load_file(path)\n" + LOAD,  # FSDP1 takes full dicts
        "model = FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)\nweights = load_file(path)\n" + SET,
        "weights = load_file(path)\n" + SET,  # DDP, plain models
        "weights = load_file(path)\n" + LOAD + SHARDED,
        "weights = load_file(path)\nif shards:\n    " + SHARDED + "else:\n    " + LOAD,
        SHARDED + "model = build()\nweights = load_file(path)\n" + LOAD,
        "def shard(model):\n    " + SHARDED + "\ndef load(model):\n    weights = load_file(path)\n    " + LOAD,
    ],
)
def test_other_loads_are_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP717", torch=">=2.6")
