"""The module that the target fsdp2 generates trains as FSDP1 does with the same arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.targets.fsdp2.generated import CLIP, NO_SYNC, SHARD, text

pytest.importorskip("torch", minversion="2.9")  # before, FSDP2 does not average on gloo

CASES = (
    "full no_policy grad_op no_shard precision casts_below buffers size size_precision function always "
    "custom_dicts synchronised synchronised_hybrid initialised reset first_rank_has_weights ignored_modules "
    "ignored_states ignored_size group group_no_shard groups_of_replicas pair_of_groups hybrid_unnamed "
    "hybrid_by_devices accumulating_precision clipping_ignored"
).split()
# The norm is a sum in another order.
CLOSE = {"clipping_ignored": 1e-6}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("generated") / "fsdp2.py"
    path.write_text(text([SHARD, NO_SYNC, CLIP]))
    command = [sys.executable, "-m", "tests.verify.against_fsdp1", str(path), *CASES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["case"]: one for one in found}


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_fsdp1_does(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert "error" not in result, result["error"]
    most = CLOSE.get(name, 0.0)
    assert result["losses"] <= most
    assert result["values"] <= most
