"""Wrap policies that another module of the project gives to FSDP."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from tests.workspace.modules.trees import PUBLIC, grow, report_of

POLICY = "def mine(module, recurse, unwrapped_params):\n    return unwrapped_params > 9\n"


@pytest.mark.parametrize(
    "train",
    [
        "from .config import KW\nm = FSDP(x, **KW)\n",
        "from .config import mine\nm = FSDP(x, auto_wrap_policy=mine)\n",
    ],
)
def test_a_policy_that_another_module_gives_to_fsdp_is_manual(train: str, tmp_path: Path) -> None:
    config = f"from torch.distributed.fsdp.wrap import wrap\n{POLICY}KW = {{'auto_wrap_policy': mine}}\n"
    tree = {"lib/__init__.py": "", "lib/config.py": f"from .policies import policy\n\n{config}"}
    grow(tmp_path, {**tree, "lib/train.py": f"{PUBLIC}{train}"})
    (found,) = report_of(tmp_path, "lib/config.py").findings
    assert (found.code, found.applicability) == ("FSDP401", Applicability.MANUAL)
