from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop, lint

DIST = "import torch.distributed as dist\n"
C10D = "from torch.distributed import distributed_c10d as c10d\n"


def found(text: str, torch: str = ">=2.1") -> list[tuple[int, str, str | None]]:
    return [(finding.line, finding.severity.value, finding.reason) for finding in lint(text, "FSDP610", torch)]


def test_the_newest_supported_release_decides() -> None:
    text = DIST + "dist.all_gather_into_tensor(a, b)\n"
    check_noop(text, "FSDP610", torch=">=2.1")
    check_noop(text, "FSDP610", torch=">=2.1,<2.13")
    check_manual(
        text,
        "FSDP610",
        "torch recommends `torch.distributed.all_gather_single`: check whether it is equivalent",
        torch=">=2.1,<2.15",
    )


def test_a_name_is_said_where_it_is_imported_if_it_is_used() -> None:
    text = "from torch.distributed.distributed_c10d import _set_pg_timeout\n"
    check_noop(text, "FSDP610", torch=">=2.3")
    expected = [
        (
            1,
            "deprecated",
            "torch recommends `torch.distributed.set_timeout`: check whether it is equivalent",
        )
    ]
    assert found(text + "_set_pg_timeout(t)\n", ">=2.3") == expected
    check_noop(text + "_set_pg_timeout(t)\n", "FSDP610", torch=">=2.3,<2.14")


def test_a_warning_without_a_successor_is_told_in_its_own_words() -> None:
    ((_, _, reason),) = found(DIST + "dist.all_reduce_coalesced(ts)\n")
    assert reason == 'torch says "`torch.distributed.all_reduce_coalesced` will be deprecated"'


def test_the_successor_is_no_name_of_something_else() -> None:
    ((_, _, reason),) = found("from torch.distributed.optim import _FunctionalAdam\n_FunctionalAdam(ps)\n")
    assert "torch.compile" in (reason or "")


def test_distributed_checkpointing_gives_hints_only() -> None:
    text = "from torch.distributed.checkpoint.staging import AsyncStager\nAsyncStager.synchronize_staging(s)\n"
    ((_, severity, _),) = found(text)
    assert severity == "hint"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "checkpoint.staging.AsyncStager.synchronize_staging",
            "Please use staging_future from AsyncSaveResponse instead",
        ),
        ("launch.main", "Use torchrun"),
        ("all_reduce_coalesced", "`torch.distributed.all_reduce_coalesced` will be deprecated"),
    ],
)
def test_what_a_later_sentence_of_the_warning_says_to_do_is_told(name: str, reason: str) -> None:
    owner, _, member = f"torch.distributed.{name}".rpartition(".")
    module, _, last = owner.rpartition(".")
    head = f"from {module} import {last}\n" if last != "distributed" else "from torch import distributed\n"
    assert found(f"{head}{last}.{member}(x)\n")[-1][2] == f'torch says "{reason}"'


def test_a_name_that_only_says_what_is_deprecated_is_no_successor() -> None:
    ((_, _, reason),) = found("from torch.distributed import distributed_c10d as c\nc.all_reduce_coalesced(ts)\n")
    assert reason == 'torch says "`torch.distributed.all_reduce_coalesced` will be deprecated"'


@pytest.mark.parametrize(
    "text",
    [
        "FSDP.state_dict_type(m, t)\n",
        "FSDP.full_optim_state_dict(m, o)\n",
        "FSDP(m, sharding_strategy=ShardingStrategy.NO_SHARD)\n",
        "dist._all_gather_base(a, b)\n",
        "dist.reduce_op.SUM\n",
        "x = strategy == ShardingStrategy.NO_SHARD\n",
    ],
)
def test_it_is_silent_where_a_rule_of_its_own_speaks(text: str) -> None:
    imports = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n"
    check_noop(DIST + imports + text, "FSDP610")


def test_it_is_silent_at_an_import_whose_uses_a_rule_of_its_own_mends() -> None:
    check_noop(DIST + "from torch.cuda.amp import autocast\nwith autocast():\n    pass\n", "FSDP610")
    check_noop("from torch.distributed.distributed_c10d import _get_global_rank\n_get_global_rank(g, 0)\n", "FSDP610")


@pytest.mark.parametrize(
    "text",
    [
        "f = dist.all_gather_into_tensor if hasattr(dist, 'all_gather_into_tensor') else dist._all_gather_base\n",
        "if 'set_timeout' not in dir(dist):\n    c10d._set_pg_timeout(t)\n",
        "try:\n    dist.set_timeout(t)\nexcept AttributeError:\n    c10d._set_pg_timeout(t)\n",
        "class C:\n    def _set_pg_timeout(self):\n        pass\nC()._set_pg_timeout()\n",
    ],
)
def test_the_old_arm_of_a_choice_is_left_alone(text: str) -> None:
    check_noop(DIST + C10D + text, "FSDP610", torch=">=2.3")


def test_what_gives_a_warning_to_others_does_not_warn_itself() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as F\nF._warn_legacy_optim_state_dict('a', 'b')\n"
    )
    check_noop(text, "FSDP610")


def test_a_name_that_getattr_reads_warns_as_an_attribute_does() -> None:
    head = "import torch.distributed as dist\nfrom torch.distributed import distributed_c10d\n"
    (told,) = lint(head + "getattr(distributed_c10d, '_set_pg_timeout')(timeout)\n", "FSDP610", ">=2.3")
    assert "_set_pg_timeout` is deprecated since torch 2.14" in told.message
    assert lint(head + "f = getattr(distributed_c10d, '_set_pg_timeout', None)\n", "FSDP610", ">=2.3") == ()
    # Another rule speaks of this one.
    assert lint(head + "f = getattr(dist, '_all_gather_base')\n", "FSDP610") == ()


@pytest.mark.parametrize("module", ["torch.distributed.nn", "torch.distributed.nn.functional"])
def test_modules_that_the_data_does_not_read_warn_too(module: str) -> None:
    text = f"from {module} import all_gather, gather\nall_gather(x)\ngather(x)\n"
    new = "torch.distributed._functional_collectives.all_gather_single"
    expected = f"torch recommends `{new}`, which gives one tensor instead of a tuple: check whether it is equivalent"
    ((line, severity, reason),) = found(text)
    assert (line, severity, reason) == (1, "deprecated", expected)
    assert [finding.message for finding in lint(text, "FSDP610")] == [
        f"`{module}.all_gather` is deprecated since torch 2.12"
    ]
    check_noop(text, "FSDP610", torch=">=2.1,<2.12")


def test_symmetric_memory_needs_no_call_any_more() -> None:
    text = "import torch.distributed._symmetric_memory as symm\nsymm.enable_symm_mem_for_group(name)\n"
    check_manual(text, "FSDP610", "no need to call", torch=">=2.5")
    check_noop(text, "FSDP610", torch=">=2.5,<2.11")


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed._shard.sharded_tensor import zeros\nt = zeros(spec, 4)\nt.reshard(other)\n",
        "from torch.distributed._shard.sharded_tensor import ShardedTensor as S\ndef f(t: S):\n    t.reshard(other)\n",
        "import torch.distributed._shard.sharded_tensor as st\nst.rand(spec, 4).reshard(other)\n",
    ],
)
def test_sharded_tensors_that_are_resharded(text: str) -> None:
    (finding,) = lint(text, "FSDP610")
    assert finding.message.endswith("ShardedTensor.reshard` is deprecated since torch 2.1")
    assert finding.reason == 'torch says "Please use DTensor instead and we are deprecating ShardedTensor"'


def test_other_things_that_are_resharded() -> None:
    imported = "from torch.distributed._shard.sharded_tensor import ShardedTensor\nfrom torch.distributed import fsdp\n"
    check_noop(f"{imported}model.reshard()\ntensor = mine(spec)\ntensor.reshard(spec)\n", "FSDP610")


def test_children_of_a_tuple_strategy() -> None:
    imported = "from torch.distributed.tensor._op_schema import TupleStrategy\n"
    check_manual(f"{imported}first = strategy.childs[0]\n", "FSDP610", "TupleStrategy.children", torch=">=2.9")
    check_noop(f"{imported}first = strategy.childs[0]\n", "FSDP610", torch=">=2.5,<2.9")
    check_noop("import torch.distributed\nfirst = family.childs[0]\n", "FSDP610")


def test_a_broadcast_with_another_gradient_is_told_apart() -> None:
    text = "import torch.distributed.nn as nn\nx = nn.broadcast(x, 0)\n"
    check_manual(text, "FSDP610", "whose gradient is not summed over the ranks")
