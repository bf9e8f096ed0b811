"""Which runs are made, decided before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.verify import Fixture, Outcome, Rendezvous, RunSettings, harness, verify
from fsdp_migrate.verify.fixtures import Condition, Header
from fsdp_migrate.verify.lanes import Lane
from fsdp_migrate.verify.worker.protocol import LaunchPlan, RankRecord, Side

ANY = Fixture("rule/any", Path("/f/any/before.py"), None)
FOUR = replace(ANY, name="rule/four", header=Header(needs=(Condition("world", ">=", "4"),)))
CUDA = replace(ANY, name="rule/cuda", header=Header(needs=(Condition("device", "==", "cuda"),)))
OLD = replace(ANY, name="rule/old", header=Header(needs=(Condition("torch", "<", "2.4"),)))


class NoLaunch:
    """Every rank reports at once that it has nothing to say."""

    plans: list[LaunchPlan]

    def __init__(self, lane: Lane, plan: LaunchPlan, rendezvous: Rendezvous, *, debug: bool) -> None:
        self.plan = plan
        self.plans.append(plan)
        self.started = True

    def __enter__(self) -> NoLaunch:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, finished: Callable[[int], None]) -> None:
        for point in self.plan.points:
            finished(point.number)

    def workarounds(self) -> list[str]:
        return []

    def records(self) -> Iterator[tuple[int, list[RankRecord]]]:
        for point in self.plan.points:
            ranks = range(self.plan.world)
            yield point.number, [RankRecord(rank, "before", {"before": Side()}, finished=True) for rank in ranks]

    def report(self, report: Any, point: int) -> Any:
        return report


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[LaunchPlan]:
    """The plans of the launches that would have been made, on a machine with one GPU and torch 2.13."""
    made: list[LaunchPlan] = []
    monkeypatch.setattr(NoLaunch, "plans", made, raising=False)
    monkeypatch.setattr(harness, "Launch", NoLaunch)
    monkeypatch.setattr(harness, "probe", lambda python, device: Lane(python, "2.13.0", 0 if device == "cpu" else 1))
    return made


def skipped(outcome: Outcome) -> dict[str, str]:
    return {r.fixture.name: r.judgement.detail for r in outcome.results if r.verdict.value == "SKIPPED"}


def test_two_ranks_and_one_launch_for_each_world_size_that_fixtures_need(plans: list[LaunchPlan]) -> None:
    verify([FOUR, ANY], RunSettings(device="cpu"))
    assert [(plan.world, plan.device, len(plan.points)) for plan in plans] == [(2, "cpu", 2), (4, "cpu", 2)]


def test_a_fixed_number_of_ranks_skips_what_needs_more(plans: list[LaunchPlan]) -> None:
    outcome = verify([FOUR, ANY], RunSettings(device="cpu", nproc=2))
    assert skipped(outcome) == {"rule/four": "needs world>=4, this run has 2 ranks"}
    assert [len(plan.points) for plan in plans] == [2]


def test_full_means_two_and_four_ranks_and_every_configuration(plans: list[LaunchPlan]) -> None:
    verify([ANY], RunSettings(device="cpu", full=True))
    assert [(plan.world, len(plan.points)) for plan in plans] == [(2, 12), (4, 16)]


def test_too_few_gpus_are_a_reason_where_gpus_were_asked_for_and_mean_the_cpu_otherwise(
    plans: list[LaunchPlan],
) -> None:
    outcome = verify([FOUR], RunSettings(device="cuda"))
    assert skipped(outcome) == {"rule/four": "needs 4 GPUs, this machine has 1"}
    verify([FOUR], RunSettings())
    assert [(plan.world, plan.device) for plan in plans] == [(4, "cpu")]
    verify([ANY], RunSettings(nproc=1))
    assert (plans[-1].world, plans[-1].device) == (1, "cuda")


def test_needs_that_are_not_met_are_reasons(plans: list[LaunchPlan]) -> None:
    outcome = verify([CUDA, OLD], RunSettings(device="cpu"))
    assert skipped(outcome) == {
        "rule/cuda": "needs device=cuda, this is cpu",
        "rule/old": "needs torch<2.4, this is 2.13.0",
    }
    assert plans == []
    assert not outcome.succeeded


def test_ranks_are_counted_for_each_machine(plans: list[LaunchPlan]) -> None:
    verify([FOUR], RunSettings(device="cpu", nproc=2, rendezvous=Rendezvous(nnodes=2, endpoint="there:1")))
    assert [plan.world for plan in plans] == [4]
