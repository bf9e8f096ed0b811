"""Running programs as `prove` does, but in ranks that are forked from a process that has torch: a third of the cost.

The recorder then comes after torch has been imported. What depends on that order, on torch's launcher or on how
processes end needs `fsdp_migrate.prove.launch.run`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import socket
import sys
import time
from dataclasses import asdict, replace
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path, PurePath
from typing import Any

from fsdp_migrate.injected import recorder
from fsdp_migrate.injected.recorder.plan import Plan
from fsdp_migrate.prove import launch
from fsdp_migrate.prove.launch import Home, Program


@cache
def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.fsdp", "torch._dynamo"])
    return context


def run(program: Program, home: Home, tree: Path, inside: PurePath, plan: Plan) -> None:
    """What `launch.run` does, for a program on the ranks of this machine's CPU."""
    for folder in (home.record, home.temporary):
        folder.mkdir(parents=True)
    deadline = time.time() + program.timeout
    plan = replace(plan, folder=str(home.record), copy=str(home.copy), tree=str(tree), deadline=deadline)
    home.plan.write_text(json.dumps(asdict(plan)))
    environment = launch._environment(program, home, tree, plan)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    ranks = []
    for rank in range(program.nproc):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(program.nproc)}
        given = {**environment, **own, "WORLD_SIZE": str(program.nproc)}
        ranks.append(_server().Process(target=_rank, args=(str(home.plan), home.copy / inside, program.words, given)))
        ranks[-1].start()
    while (running := [rank for rank in ranks if rank.exitcode is None]) and time.time() < deadline:
        wait([rank.sentinel for rank in running], deadline - time.time())
        if any(rank.exitcode for rank in ranks):
            break
    failed = {str(number): rank.exitcode for number, rank in enumerate(ranks) if rank.exitcode}
    code = None if running and not failed else int(bool(failed))
    for rank in ranks:
        rank.kill() if rank.exitcode is None else None
        rank.join()
    (home.record / "launch.json").write_text(json.dumps(launch._ended(program, home, code, failed, 0)))


def _rank(plan: str, folder: Path, words: tuple[str, ...], environment: dict[str, str]) -> None:
    import torch
    from torch.distributed import distributed_c10d

    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(words)
    recorder.install(plan)
    # They were taken from there before the recorder replaced them.
    names = vars(torch.distributed).keys() & vars(distributed_c10d).keys()
    vars(torch.distributed).update({name: vars(distributed_c10d)[name] for name in names if name[0] != "_"})
    try:
        runpy.run_path(str(folder / words[0]), run_name="__main__")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
