from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_manual, check_noop, check_transformed, lint

IMPORT = """\
import torch
from packaging.version import Version
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    LocalOptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)

"""
SET = "FSDP.set_state_dict_type(model, StateDictType.{}, None, {})\n"


@pytest.mark.parametrize("name", ["FullStateDictConfig", "FullOptimStateDictConfig"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("True, True", "offload_to_cpu=True, rank0_only=True"),
        ("cpu, rank0", "offload_to_cpu=cpu, rank0_only=rank0"),
    ],
)
def test_two_positions_get_their_keywords(name: str, before: str, after: str) -> None:
    check_transformed(f"{IMPORT}c = {name}({before})\n", f"{IMPORT}c = {name}({after})\n", "FSDP202")
    severities = {
        torch: lint(f"{IMPORT}c = {name}({before})\n", "FSDP202", torch)[0].severity for torch in (">=2.1", ">=2.2")
    }
    assert severities == {">=2.1": Severity.CHANGES, ">=2.2": Severity.HINT}


@pytest.mark.parametrize(
    "call", ["FullStateDictConfig(True)", "FullStateDictConfig(*a)", "ShardedStateDictConfig(True, True)"]
)
def test_one_position_or_other_fields_mean_the_same_everywhere(call: str) -> None:
    check_noop(f"{IMPORT}c = {call}\n", "FSDP202")


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        ("FULL_STATE_DICT", "ShardedOptimStateDictConfig()", "FullOptimStateDictConfig"),
        ("SHARDED_STATE_DICT", "FullOptimStateDictConfig()", "ShardedOptimStateDictConfig"),
        ("LOCAL_STATE_DICT", "FullOptimStateDictConfig()", "LocalOptimStateDictConfig"),
        ("FULL_STATE_DICT", "FullStateDictConfig()", "FullOptimStateDictConfig"),
    ],
)
def test_a_type_takes_the_optimizer_config_of_its_own_class(kind: str, config: str, expected: str) -> None:
    check_manual(IMPORT + SET.format(kind, config), "FSDP203", f"pass `{expected}`")
    check_noop(IMPORT + SET.format(kind, f"{expected}()"), "FSDP203")
    old = f'if Version(torch.__version__) < Version("2.1"):\n    {SET.format(kind, config)}'
    check_noop(IMPORT + old, "FSDP203")


@pytest.mark.parametrize("arguments", ["None", "unknown", "make()"])
def test_a_config_that_is_not_visible_may_be_right(arguments: str) -> None:
    check_noop(IMPORT + SET.format("FULL_STATE_DICT", arguments), "FSDP203")


def test_use_dtensor_is_dropped_where_it_is_false() -> None:
    text = f"{IMPORT}c = ShardedStateDictConfig(offload_to_cpu=True, use_dtensor={{}})\n"
    check_transformed(text.format("False"), f"{IMPORT}c = ShardedStateDictConfig(offload_to_cpu=True)\n", "FSDP204")
    check_manual(text.format("True"), "FSDP204", "build it with `FSDP(")
    kept = "ShardedStateDictConfig(offload_to_cpu=True\n# why\n)"
    check_transformed(text.format("False  # why\n"), f"{IMPORT}c = {kept}\n", "FSDP204")
    check_noop(text.format("True"), "FSDP204", torch=">=2.1,<2.2")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('FullStateDictConfig(**{"use_dtensor": False})\n', 2, "remove it from the dict"),
        ("FullStateDictConfig(rank0_only=True, **dict(use_dtensor=True))\n", 2, "build it with `FSDP("),
        ("kw = dict(use_dtensor=False)\nFullStateDictConfig(**kw)\n", 2, "remove it from the dict"),
        ('kw = {}\nkw["use_dtensor"] = False\nFullStateDictConfig(**kw)\n', 3, "remove it from the dict"),
        (
            "def f():\n    kw = {'use_dtensor': x}\n    return FullStateDictConfig(**kw)\n",
            3,
            "build it with `FSDP(",
        ),
    ],
)
def test_the_field_of_torch_2_1_is_seen_in_what_is_unpacked(text: str, line: int, reason: str) -> None:
    head = "from torch.distributed.fsdp import FullStateDictConfig\n"
    check_manual(head + text, "FSDP204", reason, torch=">=2.2")
    assert [one.line for one in lint(head + text, "FSDP204", ">=2.2")] == [line]
    check_noop(head + text.replace("use_dtensor", "rank0_only"), "FSDP204", torch=">=2.2")


@pytest.mark.parametrize("name", ["partial", "functools.partial"])
def test_a_partial_of_a_config_is_as_good_as_a_call(name: str) -> None:
    head = "import functools\nfrom functools import partial\nfrom torch.distributed.fsdp import FullStateDictConfig\n"
    check_manual(f"{head}{name}(FullStateDictConfig, True, True)\n", "FSDP202", "by keyword", torch=">=2.1")
    check_noop(f"{head}{name}(FullStateDictConfig, True)\n{name}(other, True, True)\n", "FSDP202")
    before = f"{head}{name}(FullStateDictConfig, rank0_only=True, use_dtensor=False)\n"
    check_transformed(before, before.replace(", use_dtensor=False", ""), "FSDP204", torch=">=2.2")
