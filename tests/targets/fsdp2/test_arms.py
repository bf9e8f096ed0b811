"""Programs that serve FSDP1 and FSDP2 are left as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.programs import check_stays, plan

HEAD = "from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP, fully_shard\n"


@pytest.mark.parametrize(
    "program",
    [
        "if new:\n    fully_shard(net)\n    model = net\nelse:\n    model = FSDP(net)\nmodel(batch)\n",
        "model = FSDP(net)\nif isinstance(model, FSDPModule):\n    model.reshard()\n",
        "model = FSDP(net)\nif isinstance(model, (FSDP, FSDPModule)):\n    show(1)\n",
        "def new(net):\n    return fully_shard(net)\n\n\nmodel = new(net) if two else FSDP(net)\nmodel(batch)\n",
    ],
)
def test_a_model_with_an_arm_for_fsdp2_stays(tmp_path: Path, program: str) -> None:
    check_stays(tmp_path, HEAD + program, "an arm for FSDP2 already")


def test_another_model_may_be_sharded_already(tmp_path: Path) -> None:
    program = HEAD + "fully_shard(teacher)\nmodel = FSDP(net)\nmodel(batch)\n"
    assert plan(tmp_path, program).left == ()
