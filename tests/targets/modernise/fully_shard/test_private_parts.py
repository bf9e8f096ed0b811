from __future__ import annotations

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, lint

FSDP2 = "from torch.distributed.fsdp import UnshardHandle, fully_shard\n"
OLD = "from torch.distributed._composable.fsdp import UnshardHandle, fully_shard\n"


def test_the_one_group_is_a_hint_from_2_12_on() -> None:
    text = "group = fully_shard.state(m)._fsdp_param_group\n"
    check_manual(FSDP2 + text, "FSDP513", "_fsdp_param_groups", torch=">=2.6")
    check_noop(FSDP2 + text, "FSDP513", torch=">=2.6,<2.12")
    check_noop(FSDP2 + text + "x = getattr(s, '_fsdp_param_groups', None)\n", "FSDP513", torch=">=2.6")
    check_noop(text, "FSDP513", torch=">=2.6")


def test_the_module_of_that_name_is_no_group() -> None:
    package = "torch.distributed.fsdp._fully_shard"
    check_noop(f"{FSDP2}import torch\nx = {package}._fsdp_param_group.FSDPParamGroup\n", "FSDP513", torch=">=2.6")
    check_noop(f"{FSDP2}from {package} import _fsdp_param_group as g\ng.FSDPParamGroup\n", "FSDP513", torch=">=2.6")


def test_a_handle_with_arguments_breaks_from_2_6_on() -> None:
    (finding,) = lint(OLD + "h = UnshardHandle(group)\n", "FSDP513", ">=2.4")
    assert (finding.severity, finding.line) == (Severity.BREAKS, 2)
    check_noop(OLD + "h = UnshardHandle(group)\n", "FSDP513", torch=">=2.4,<2.6")
    check_noop(FSDP2 + "h: UnshardHandle = m.unshard()\nh = UnshardHandle()\n", "FSDP513", torch=">=2.6")
