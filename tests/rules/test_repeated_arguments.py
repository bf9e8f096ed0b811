from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_transformed

SCALER = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n\n"
RANK = "from torch.distributed.distributed_c10d import _get_global_rank\n\n"
SAVE = "import torch.distributed.checkpoint as dcp\n\n"


@pytest.mark.parametrize(
    ("code", "program", "name"),
    [
        ("FSDP804", SCALER + "s = ShardedGradScaler(1.0, init_scale=2.0)\n", "init_scale"),
        ("FSDP804", SCALER + "s = ShardedGradScaler(1.0, **{'init_scale': 2.0})\n", "init_scale"),
        ("FSDP813", RANK + "x = _get_global_rank(g, rank=1, group_rank=2)\n", "group_rank"),
        ("FSDP702", SAVE + "dcp.save(state, writer, planner=p, planner=q)\n", "planner"),
    ],
)
def test_a_fix_that_gives_an_argument_twice_is_refused_whatever_the_rule(code: str, program: str, name: str) -> None:
    check_manual(program, code, f"the call would give `{name}` twice", torch=">=2.3")


def test_other_arguments_in_a_dict_do_not_matter() -> None:
    check_transformed(
        SCALER + "s = ShardedGradScaler(1.0, **{'enabled': on})\n",
        SCALER + "s = ShardedGradScaler(init_scale=1.0, **{'enabled': on})\n",
        "FSDP804",
    )
