"""What `verify` works around where `fully_shard` of older releases runs on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


@pytest.mark.parametrize("by_keyword", [True, False])
@pytest.mark.parametrize(("op", "mean"), [(dist.ReduceOp.AVG, True), (dist.ReduceOp.SUM, False), (None, False)])
def test_means_are_sums_that_are_divided(
    by_keyword: bool, op: Any, mean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsdp_migrate.verify.worker import sharding_on_cpu

    def add(output: Any, whole: Any, op: Any = dist.ReduceOp.SUM, group: Any = None) -> None:
        assert op == dist.ReduceOp.SUM  # gloo takes others for it
        output.copy_(whole * 4)

    monkeypatch.setattr(dist, "get_world_size", lambda _group: 4)
    output, given = torch.zeros(2), torch.tensor([1.0, 2.0])
    options = {} if op is None else {"op": op}
    collective = sharding_on_cpu._averaging(add)
    if by_keyword:
        collective(output=output, whole=given, **options)
    else:
        collective(output, given, **options)
    assert output.tolist() == (given if mean else given * 4).tolist()
