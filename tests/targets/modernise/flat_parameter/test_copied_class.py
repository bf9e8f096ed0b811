from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tests.rules.checks import check_manual, check_noop, lint

IMPORTS = """\
import torch.distributed as dist
from torch.distributed.fsdp.flat_param import FlatParameter, FlatParamHandle
from torch.distributed.fsdp._utils import _is_fsdp_flattened
from torch.distributed.fsdp._optim_utils import _flatten_optim_state_dict
"""
METHODS = """\
    @staticmethod
    def summon_full_params(module):
        return isinstance(module.p, FlatParameter) and _is_fsdp_flattened(module.p)

    @staticmethod
    def full_optim_state_dict(model, optim):
        return dist._all_gather_base(model, optim)
"""
COPY = f"{IMPORTS}\n\nclass FullyShardedDataParallel(Module):\n{METHODS}"


def rewritten(text: str) -> str:
    return rewrite_bytes(text.encode(), "x.py", Settings(TorchRange.parse(">=2.1"), unsafe_fixes=True)).raw.decode()


def test_a_copy_is_told_once_and_by_the_rules_beside_fsdp() -> None:
    found = lint(COPY, "FSDP")
    assert [(one.code, one.line) for one in found] == [("FSDP305", 7), ("FSDP811", 14)]
    assert (found[0].severity, found[0].applicability) == (Severity.BREAKS, Applicability.MANUAL)
    assert found[0].message == (
        "this file is a copy of torch's FSDP class, which works with the private modules of one torch release only"
    )
    check_manual(COPY, "FSDP305", "use torch's own class")


def test_no_import_of_a_copy_is_fixed() -> None:
    assert rewritten(COPY) == COPY.replace("_all_gather_base", "all_gather_into_tensor")


def test_a_copy_in_which_nothing_would_be_said_is_left_alone() -> None:
    check_noop(f"class FullyShardedDataParallel(Module):\n{METHODS}", "FSDP3")


def test_the_severity_is_that_of_what_would_be_said() -> None:
    (found,) = lint(COPY, "FSDP305", torch=">=1.13,<2.0")
    assert found.severity is Severity.HINT


@pytest.mark.parametrize(
    "text",
    [
        COPY.replace("class FullyShardedDataParallel", "class Other"),
        COPY.replace("def summon_full_params", "def gather"),
        COPY.replace("def full_optim_state_dict", "def gather"),
        f"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n{COPY.replace('(Module)', '(FSDP)')}",
    ],
)
def test_what_is_no_copy_is_checked_as_ever(text: str) -> None:
    found = {one.code for one in lint(text, "FSDP")}
    assert "FSDP303" in found
    assert "FSDP305" not in found
