"""FSDP720: shards of FSDP1 models on ranks that have no part of some parameter."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

IMPORT = """\
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, get_state_dict
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
BUILT = "model = FSDP(net)\n"
OLDER, NEWER = ">=2.4,<2.8", ">=2.8"
TAKEN = "weights = get_model_state_dict(model)\n"
LOADED = "state = {'optim': get_optimizer_state_dict(model, optim)}\ndcp.load(state, checkpoint_id=path)\n"


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (TAKEN, OLDER),
        ("weights, moments = get_state_dict(model, optim)\n", OLDER),
        (TAKEN.replace("(model)", "(model, options=StateDictOptions(cpu_offload=True))"), OLDER),
        (LOADED, NEWER),
        (LOADED.replace("=path)", "=path, planner=planner)"), NEWER),
        ("weights, moments = get_state_dict(model, o)\ndcp.load({'o': moments}, checkpoint_id=path)\n", NEWER),
    ],
)
def test_shards_without_a_mesh_are_a_hint(text: str, torch: str) -> None:
    check_manual(IMPORT + BUILT + text, "FSDP720", "`device_mesh`", torch=torch)
    (found,) = lint(IMPORT + BUILT + text, "FSDP720", torch)
    assert found.severity.value == "hint"


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (BUILT + TAKEN, NEWER),
        (BUILT + LOADED, ">=2.4,<2.5"),
        (BUILT + TAKEN.replace("(model)", "(model, options=StateDictOptions(full_state_dict=True))"), OLDER),
        (BUILT + TAKEN.replace("(model)", "(other)"), OLDER),
        (BUILT + LOADED.replace("load(", "save("), NEWER),
        ("model = FSDP(net, device_mesh=mesh)\n" + TAKEN + LOADED, ">=2.4"),
        ("model = FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)\n" + TAKEN + LOADED, ">=2.4"),
        (TAKEN + LOADED, ">=2.4"),
    ],
)
def test_what_works_or_cannot_be_told_is_left(text: str, torch: str) -> None:
    check_noop(IMPORT + text, "FSDP720", torch=torch)
