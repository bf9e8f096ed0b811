"""Running one program of a fixture on this rank, from a fresh process group to what it observed."""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import gc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TextIO

import torch
import torch.distributed as dist

from . import protocol
from .evidence import Watch
from .kinds import FlatParamHandle
from .placement import Recorder
from .protocol import Failure, LaunchPlan, Point, Side
from .snapshot import PROGRAM, Snapshot
from .state import CleanState
from .trial import Skip, StepWatch, Trial

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
DRAIN = 0.02  # seconds
MESSAGE = 2000  # characters kept of an exception's message


@dataclass
class Rank:
    """This process: its place among the ranks, and what is installed in it once."""

    rank: int
    world: int
    local_rank: int
    plan: LaunchPlan
    stacks: TextIO
    baseline: CleanState
    recorder: Recorder
    steps: StepWatch

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
    folder = Path(here.plan.folder) / "work" / f"{point.number}-{side}"
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    here.recorder.take()
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
        with _only_this_process(), watch(), _imports_from(os.path.dirname(path), os.path.dirname(point.before)):
            _run(_load(path), trial)
    except Skip as reason:
        skip = str(reason)
    except BaseException as error:
        failure = _failure(error)
    finally:
        faulthandler.cancel_dump_traceback_later()
        here.steps.trial = None
        here.baseline.restore()
    return _outcome(trial, watch, failure, skip, here.recorder), list(trial.observations)


@contextlib.contextmanager
def _only_this_process() -> Iterator[None]:
    """End whatever process a program forked off that comes back from it, as it would have ended by itself."""
    process, code = os.getpid(), 1
    try:
        yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        if os.getpid() != process:
            os._exit(code & 0xFF)


def _run(program: ModuleType, trial: Trial) -> None:
    scenario = getattr(program, "scenario", None)
    if not callable(scenario):
        raise AttributeError(f"{program.__file__} has no function scenario(trial)")
    returned = scenario(trial)
    if inspect.isgenerator(returned) or inspect.isawaitable(returned):
        raise TypeError(f"scenario(trial) returned a {type(returned).__name__}: nothing in it has run")


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
        # A constructor of FSDP that failed halfway leaves a handle without one.
        if hasattr(handle, "flat_param"):
            vars(handle.flat_param).clear()
    gc.collect()


def _load(path: str) -> ModuleType:
    """Import a program under a name of its own, compiled anew."""
    name = PROGRAM + os.path.splitext(os.path.basename(path))[0]
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    source = Path(path).read_bytes()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


@contextlib.contextmanager
def _imports_from(*folders: str) -> Iterator[None]:
    """Let a program import what lies in `folders`, and forget it afterwards: the other program may have its own."""
    known, path = dict(sys.modules), list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - set(known):
            module = sys.modules[name]
            file = getattr(module, "__file__", None) or ""
            # What has no specification was made by the program, in place of one that is not installed.
            if getattr(module, "__spec__", None) is None or file.startswith(tuple(f + os.sep for f in folders)):
                del sys.modules[name]
        sys.modules.update(known)


def _failure(error: BaseException) -> Failure:
    first = _past_the_harness(error.__traceback__)
    made = Failure(
        type=type(error).__name__,
        bases=tuple(base.__name__ for base in type(error).__mro__),
        message=_message(error)[:MESSAGE],
        traceback="".join(traceback.format_exception(type(error), error, first)).strip()[-4 * MESSAGE :],
        time=time.time(),
    )
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is known for known in links):
        links.append(link)
        traceback.clear_frames(link.__traceback__)
        link.__traceback__, link = None, link.__cause__ or link.__context__
    return made


def _message(error: BaseException) -> str:
    try:
        return str(error).strip()
    except BaseException:
        return "its message is not available: its __str__ raises"


def _past_the_harness(link: TracebackType | None) -> TracebackType | None:
    while link is not None and (link.tb_frame.f_code.co_filename.startswith((HERE, contextlib.__file__))):
        link = link.tb_next
    return link
