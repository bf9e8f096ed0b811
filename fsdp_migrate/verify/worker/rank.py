"""One rank under torch's elastic launcher: GPUs, and several machines.

The launcher restarts all ranks when one ends badly; what was started by then is not started again.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import torch

from . import protocol, workarounds
from .kinds import c10d
from .loop import alive, run_plan
from .protocol import LaunchPlan


def main(plan_file: str) -> None:
    """Join the ranks that the launcher's environment variables describe, and run the plan."""
    plan = LaunchPlan.read(plan_file)
    folder = Path(plan.folder)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if not alive(plan.harness) or restarts > len(protocol.started(folder, plan.world)):
        return  # nobody waits; or the last attempt started nothing, and the next one would not either
    local_rank, local_world = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    notes = workarounds.install() if plan.device == "cpu" else []
    if plan.device == "cpu":
        torch.set_num_threads(1)
    else:
        # Two runs of one program have to agree bitwise.
        torch.use_deterministic_algorithms(True, warn_only=True)
    if local_rank == 0:
        protocol.append(protocol.hello_file(folder), {"torch": torch.__version__, "workarounds": notes})
    store, rank, _ = next(c10d.rendezvous("env://", timeout=datetime.timedelta(seconds=300)))
    run_plan(plan, store, rank, local_rank, local_world)
