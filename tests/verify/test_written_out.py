"""What the target fsdp2 makes of constructors that are written out trains as they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.targets.fsdp2.building import rewritten

pytest.importorskip("torch", minversion="2.9")  # before, FSDP2 does not average on gloo

HEAD = """\
import functools
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, enable_wrap, lambda_auto_wrap_policy, wrap
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from tests.verify.against_fsdp1 import Half, Net, Scaled

CPU = torch.device("cpu")


"""
POLICY = "auto_wrap_policy=ModuleWrapPolicy({Half, Scaled})"
BF16 = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
REDUCES = "mixed_precision=MixedPrecision(reduce_dtype=torch.bfloat16)"
MESH = '    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))\n'


def build(call: str, before: str = "") -> str:
    """A function that wraps a net by a call."""
    return f"def build(net):\n{before}    net = FSDP(net, {call}device_id=CPU)\n    return net\n"


CASES = {
    "root": build(""),
    "classes": build(f"{POLICY}, "),
    "nested_classes": build("auto_wrap_policy=ModuleWrapPolicy({Half, nn.Conv1d, nn.Sequential}), "),
    "grad_op": build(f"{POLICY}, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, "),
    "function": build(
        "auto_wrap_policy=policy, ",
        "    policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in list(net.halves))\n",
    ),
    "custom": build("auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, Half) or m is net.last), "),
    "precision": build(f"{POLICY}, {BF16}, "),
    "precision_by_name": build(f"{POLICY}, mixed_precision=mp, ", f"    mp = {BF16.partition('=')[2]}\n"),
    "precision_casts": build(f"{POLICY}, {BF16[:-1]}, cast_forward_inputs=True), "),
    "dict": build("**options, ", f"    options = dict({POLICY}, {BF16})\n"),
    "parts": (
        "def build(net):\n"
        "    for i, half in enumerate(net.halves):\n"
        f"        net.halves[i] = FSDP(half, {REDUCES}, device_id=CPU)\n"
        f"    net.scaled = FSDP(net.scaled, {REDUCES}, device_id=CPU)\n"
        "    net = FSDP(net, device_id=CPU)\n"
        "    return net\n"
    ),
    "hybrid": build(f"{POLICY}, device_mesh=mesh, sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2, ", MESH),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("programs") / "programs.json"
    programs = []
    for name, function in CASES.items():
        before = HEAD + function
        after = rewritten(before)
        assert "FullyShardedDataParallel" not in after
        assert "shard(" not in after.replace("fully_shard(", "")
        programs.append((name, 4 if name == "hybrid" else 2, before, after))
    path.write_text(json.dumps(programs))
    command = [sys.executable, "-m", "tests.verify.written_out", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["case"]: one for one in found}


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_fsdp1_does(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert "error" not in result, result["error"]
    assert result["losses"] == 0.0
    assert result["values"] == 0.0
