"""One rank's way through the plan: every point in turn, each report on disk before the next step is taken."""

from __future__ import annotations

import datetime
import json
import os
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from . import protocol
from .compare import compare
from .kinds import c10d
from .placement import Recorder
from .protocol import ABANDONED, SIDES, LaunchPlan, Point, Side
from .run import Rank, leave_group, run_side
from .snapshot import Snapshot
from .state import CleanState
from .trial import StepWatch

ANSWER = 60.0  # seconds in which a rank that has nothing to compute answers


class Peers:
    """The other ranks, reached through the store: it works whatever state a process group is in."""

    def __init__(self, store: Any, here: Rank, local: range) -> None:
        self._store = store
        self._here = here
        self._local = local

    def exchange(self, topic: str, mine: dict[str, Any], patience: float) -> list[dict[str, Any]]:
        """Give `mine` to every rank and return what all of them gave, by rank.

        Exits the process when a rank gives nothing within `patience` seconds: it died or hangs, and the launch has
        to be resumed.
        """
        keys = [f"{topic}/{rank}" for rank in range(self._here.world)]
        self._store.set(keys[self._here.rank], json.dumps(mine))
        try:
            self._store.wait(keys, datetime.timedelta(seconds=patience))
            return [json.loads(self._store.get(key)) for key in keys]
        except Exception:
            protocol.note_leaving(Path(self._here.plan.folder), self._here.rank, ABANDONED)
            os._exit(1)

    def report(self, topic: str, event: dict[str, Any], patience: float) -> list[dict[str, Any]]:
        """Exchange an event and put it on disk; the first rank of a machine also writes those of other machines."""
        folder = Path(self._here.plan.folder)
        protocol.append(protocol.record_file(folder, self._here.rank), event)
        events = self.exchange(topic, event, patience)
        if self._here.local_rank == 0:
            for rank, other in enumerate(events):
                if rank not in self._local:
                    protocol.append(protocol.record_file(folder, rank), other)
        return events


def run_plan(plan: LaunchPlan, store: Any, rank: int, local_rank: int, local_world: int) -> None:
    """Run every point that no rank has started yet."""
    _end_with(plan.harness)
    stacks = protocol.stack_file(Path(plan.folder), rank).open("a", encoding="utf-8")
    recorder, steps = Recorder(), StepWatch()
    recorder.install()
    baseline = CleanState(protocol.output_file(Path(plan.folder), rank), stacks)
    baseline.restore()
    here = Rank(rank, plan.world, local_rank, plan, stacks, baseline, recorder, steps)
    if plan.device == "cuda":
        torch.cuda.set_device(local_rank)
    first = rank - local_rank
    peers = Peers(store, here, range(first, first + local_world))
    started = _started_anywhere(here, peers)
    ran: list[tuple[Point, set[str]]] = []
    for point in plan.points:
        if point.number in started:
            continue
        reason = _nothing_new(point, ran)
        if reason:
            _report_skip(peers, point, reason)
        else:
            used = _run_point(here, peers, c10d.PrefixStore(f"point{point.number}", store), point)
            ran += [(point, used)] if used is not None else []


def _nothing_new(point: Point, ran: list[tuple[Point, set[str]]]) -> str | None:
    """Why running `point` would repeat an earlier one: the programs do not look at the axes in which they differ."""
    for earlier, used in ran:
        if (earlier.before, earlier.after) == (point.before, point.after):
            differing = [axis for axis in protocol.AXES if getattr(earlier, axis) != getattr(point, axis)]
            if not used.intersection(differing):
                return f"{protocol.REPEATS} {', '.join(differing)}"
    return None


def _report_skip(peers: Peers, point: Point, reason: str) -> None:
    side = {"event": "side", "point": point.number, "side": "before", "outcome": asdict(Side(skip=reason))}
    end = {"event": "end", "point": point.number, "differences": [], "seconds": 0.0}
    for event in (side, end):
        peers.report(f"{point.number}/{event['event']}", event, ANSWER)


def _started_anywhere(here: Rank, peers: Peers) -> set[int]:
    """The points that any rank on any machine has started in an earlier attempt.

    Raises:
        RuntimeError: the machines were not given the same fixtures.
    """
    names = [[point.number, "/".join(Path(point.before).parts[-3:])] for point in here.plan.points]
    mine = [int(number) for number in protocol.records(Path(here.plan.folder), here.rank)]
    answers = peers.exchange("started", {"names": names, "started": mine}, ANSWER)
    if any(answer["names"] != names for answer in answers):
        raise RuntimeError("the machines do not run the same fixtures: give each the same paths and options")
    return {number for answer in answers for number in answer["started"]}


def _run_point(here: Rank, peers: Peers, store: Any, point: Point) -> set[str] | None:
    """Run both programs of a point and compare them; returns the axes they use, if the last one succeeded."""
    began = time.monotonic()
    observed: dict[str, list[tuple[str, Snapshot]]] = {}
    used: set[str] = set()
    intact = good = True
    for side in SIDES:
        if getattr(point, side) is None:
            continue
        protocol.append(
            protocol.record_file(Path(here.plan.folder), here.rank),
            {"event": "start", "point": point.number, "side": side},
        )
        outcome, observed[side] = run_side(here, point, side, c10d.PrefixStore(side, store))
        failed = outcome.failure is not None
        if failed:
            leave_group()
        told = {"event": "side", "point": point.number, "side": side, "outcome": asdict(outcome)}
        patience = here.plan.group_timeout if failed else here.plan.timeout + here.plan.group_timeout
        answers = peers.report(f"{point.number}/{side}", told, patience)
        good = all(answer["outcome"]["failure"] is None for answer in answers)
        intact = intact and good
        used.update(axis for answer in answers for axis in answer["outcome"]["used"])
        leave_group()
    differences = compare(observed["before"], observed["after"]) if intact and point.after else []
    told = {
        "event": "end",
        "point": point.number,
        "differences": [asdict(difference) for difference in differences],
        "seconds": time.monotonic() - began,
    }
    peers.report(f"{point.number}/end", told, ANSWER)
    return used if good else None


def _end_with(harness: int) -> None:
    """End when the launcher or the harness is gone: nothing else would stop this process then."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher and alive(harness):
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def alive(process: int) -> bool:
    """Whether a process of this machine exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
