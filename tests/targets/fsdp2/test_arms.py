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


ARMS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args, net):
    if args.fsdp:
        model = FSDP(net, use_orig_params=True)
    else:
        model = DDP(net)
    model(args.batch)
    {use}
"""


def test_a_state_dict_that_may_be_of_ddp_has_other_keys(tmp_path: Path) -> None:
    check_stays(tmp_path, ARMS.format(use="torch.save(model.state_dict(), args.path)"), "may also be a DDP model here")


@pytest.mark.parametrize(
    "use",
    [
        "return model.state_dict() if args.fsdp else model.module.state_dict()",
        "if not args.fsdp:\n        with args.log:\n            return model.module.state_dict()\n"
        "    return model.state_dict()",
        "if isinstance(model, FSDP):\n        return model.state_dict()\n    return model.module.state_dict()",
        "if isinstance(model, FSDP):\n        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "            return model.state_dict()\n    return model.module.state_dict()",
        "if args.fsdp:\n        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "            return model.state_dict()\n    else:\n        return model.module.state_dict()",
    ],
)
def test_the_state_dict_of_another_arm_stays(tmp_path: Path, use: str) -> None:
    text = plan(tmp_path, ARMS.format(use=use), unsafe=True).texts["train.py"]
    assert text.count("get_model_state_dict(model, ") == 1
    assert text.count("model.module.state_dict()") == 1


def test_state_dicts_of_a_plain_model_on_another_arm_stay(tmp_path: Path) -> None:
    use = "return model.state_dict() if args.fsdp else {'model': model.state_dict()}"
    text = plan(tmp_path, ARMS.format(use=use).replace("DDP(net)", "net"), unsafe=True).texts["train.py"]
    assert "else {'model': model.state_dict()}" in text
