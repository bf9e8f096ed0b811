"""Running one program of a fixture on this rank, from a fresh process group to what it observed."""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import gc
import importlib.machinery
import importlib.util
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from . import protocol
from .evidence import Watch
from .kinds import FlatParamHandle
from .placement import Recorder
from .protocol import Failure, Plan, Point, Side
from .snapshot import Snapshot
from .trial import Skip, StepWatch, Trial

SEED = 20230315
DRAIN = 0.02  # seconds
MESSAGE = 2000  # characters kept of an exception's message


@dataclass
class Rank:
    """This process: its place among the ranks, and what is installed in it once."""

    rank: int
    world: int
    local_rank: int
    plan: Plan
    stacks: TextIO
    recorder: Recorder = field(default_factory=Recorder)
    steps: StepWatch = field(default_factory=StepWatch)

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return torch.device("cpu") if self.plan.device == "cpu" else torch.device("cuda", self.local_rank)


def run_side(here: Rank, point: Point, side: str, store: Any) -> tuple[Side, list[tuple[str, Snapshot]]]:
    """Run `before` or `after` of a point in a process group of its own, which the caller takes down.

    `store` is the part of the shared store that belongs to this run. Whatever the program raises becomes part of the
    outcome.
    """
    path = str(getattr(point, side))
    _fresh_state(here, point, side)
    _join_group(here, store)
    trial = Trial(point, here.device)
    watch = Watch(point.looks, path)
    failure: Failure | None = None
    skip: str | None = None
    for stream in (here.stacks, sys.stderr):
        stream.write(protocol.heading(point.number, side))
        stream.flush()
    here.steps.trial = trial
    faulthandler.dump_traceback_later(here.plan.timeout, exit=True, file=here.stacks)
    try:
        with watch(), _imports_from(os.path.dirname(path), os.path.dirname(point.before)):
            _load(path).scenario(trial)
    except Skip as reason:
        skip = str(reason)
    except BaseException as error:
        failure = _failure(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
        here.steps.trial = None
    return _outcome(trial, watch, failure, skip, here.recorder), trial.observations


def _join_group(here: Rank, store: Any) -> None:
    """Form the default process group.

    A failure here is not the program's, and leaves torch's count of groups out of step with the other ranks: it ends
    the process, and the launch is resumed with fresh ones.
    """
    patience = datetime.timedelta(seconds=here.plan.group_timeout)
    backend = "gloo" if here.plan.device == "cpu" else "nccl"
    dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.world, timeout=patience)
    # A program that fails at once would close its connections while another rank still makes them.
    store.set(f"joined/{here.rank}", "")
    store.wait([f"joined/{rank}" for rank in range(here.world)], patience)


def _outcome(trial: Trial, watch: Watch, failure: Failure | None, skip: str | None, recorder: Recorder) -> Side:
    oracle = trial.oracle
    return Side(
        failure=failure,
        skip=skip,
        seen=watch.seen(failure is not None),
        placements=recorder.take(),
        oracle=tuple(oracle.complaints),
        checked=oracle.checked,
        unchecked=oracle.unchecked,
        fixed={axis: value for axis, value in trial.fixed.items() if axis not in trial.used},
        used=tuple(sorted(trial.used)),
        deprecations=watch.deprecations(),
    )


def leave_group() -> None:
    """Take the process group down; whoever still waits for this rank then fails at once instead of timing out."""
    # Destroying a group waits for gloo's threads, and a thread that still frees the tensors of its last collective
    # waits for the interpreter lock meanwhile (seen with torch 2.4 and 2.6): let them finish first.
    time.sleep(DRAIN)
    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()
    # Models and tracebacks hold groups alive, and with them threads and connections. A flat parameter is in a cycle
    # through the base of its views, which the collector cannot see.
    for handle in [found for found in gc.get_objects() if type(found) is FlatParamHandle]:
        vars(handle.flat_param).clear()
    gc.collect()


def _fresh_state(here: Rank, point: Point, side: str) -> None:
    folder = Path(here.plan.folder) / "work" / f"{point.number}-{side}"
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    random.seed(SEED)
    torch.manual_seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED % 2**32)
    here.recorder.take()


def _load(path: str) -> Any:
    """Import a program under a name of its own, compiled anew."""
    name = "scenario_" + os.path.splitext(os.path.basename(path))[0]
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    source = Path(path).read_bytes()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    if not hasattr(module, "scenario"):
        raise AttributeError(f"{path} has no function scenario(trial)")
    return module


@contextlib.contextmanager
def _imports_from(*folders: str) -> Iterator[None]:
    """Let a program import what lies in `folders`, and forget it afterwards: the other program may have its own."""
    known, path = set(sys.modules), list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(tuple(folder + os.sep for folder in folders)):
                del sys.modules[name]


def _failure(error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    made = Failure(
        type=type(error).__name__,
        bases=tuple(base.__name__ for base in type(error).__mro__),
        message=str(error).strip()[:MESSAGE],
        traceback=text[-4 * MESSAGE :],
        time=time.time(),
    )
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link.__traceback__, link = None, link.__cause__ or link.__context__
    return made
