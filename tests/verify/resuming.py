"""Run functions of programs on some ranks of the CPU, one after the other: `python -m tests.verify.resuming JOBS`.

JOBS is a file with JSON: launches, each with its number of ranks and its jobs. A job names a program's file, a
function of it, `use_orig_params` and a path. Each prints a line of JSON with what the function returns on each rank.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fsdp_migrate.verify.worker import workarounds

Job = tuple[str, str, bool, str]


def _rank(rank: int, store: str, ranks: int, jobs: list[Job]) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    workarounds.install()
    programs = {path: runpy.run_path(path) for path, *_ in jobs}
    for program, function, use_orig_params, path in jobs:
        every: list[Any] = [None] * ranks
        dist.all_gather_object(every, programs[program][function](use_orig_params, path))
        if rank == 0:
            sys.stdout.write(json.dumps(every) + "\n")
            sys.stdout.flush()
    dist.destroy_process_group()


def main(launches: list[tuple[int, list[Job]]]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    for ranks, jobs in launches:
        with tempfile.TemporaryDirectory() as folder:
            arguments = (os.path.join(folder, "store"), ranks, jobs)
            torch.multiprocessing.start_processes(_rank, arguments, ranks, start_method="fork")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
