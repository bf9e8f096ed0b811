from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
HYBRID = "sharding_strategy=ShardingStrategy.HYBRID_SHARD"


@pytest.mark.parametrize(
    "text",
    [
        f"FSDP(m, {HYBRID}, sync_module_states=True)\n",
        "FSDP(m, sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2, sync_module_states=True)\n",
        "FSDP(m, sharding_strategy=ShardingStrategy['HYBRID_SHARD'], sync_module_states=True)\n",
        "s = ShardingStrategy.HYBRID_SHARD\nFSDP(m, sharding_strategy=s, sync_module_states=True)\n",
        f"kw = dict({HYBRID}, sync_module_states=True)\nFSDP(m, **kw)\n",
    ],
)
def test_groups_that_are_synchronised_are_a_hint_on_both_sides_of_2_12(text: str) -> None:
    check_manual(FSDP + text, "FSDP508", "load the same values on all ranks")
    check_noop(FSDP + text, "FSDP508", torch=">=2.12")
    check_noop(FSDP + text, "FSDP508", torch=">=2.1,<2.12")


def test_other_strategies_and_no_synchronisation_are_left_alone() -> None:
    check_noop(f"{FSDP}FSDP(m, {HYBRID})\n", "FSDP508")
    check_noop(f"{FSDP}FSDP(m, {HYBRID}, sync_module_states=flag)\n", "FSDP508")
    check_noop(f"{FSDP}FSDP(m, sync_module_states=True)\n", "FSDP508")


CLIP = FSDP + "model = FSDP(m)\n{0}model.clip_grad_norm_(1.0){1}\n"


@pytest.mark.parametrize(("before", "after"), [("norm = ", ""), ("log(", ")"), ("assert ", " < 3")])
def test_a_used_norm_is_reported_where_torch_1_is_supported(before: str, after: str) -> None:
    check_manual(CLIP.format(before, after), "FSDP509", "check the result for None", torch=">=1.12")
    check_noop(CLIP.format(before, after), "FSDP509")


def test_clipping_alone_is_left_alone() -> None:
    check_noop(CLIP.format("", ""), "FSDP509", torch=">=1.12")
    check_noop(FSDP + "def f(model):\n    return model.clip_grad_norm_(1.0)\n", "FSDP509", torch=">=1.12")
