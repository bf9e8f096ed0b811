"""Noise, tolerances and the drift of a control run; and what holds for any records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fsdp_migrate.prove import compare, differences, verdicts
from fsdp_migrate.prove.compare import Phase
from fsdp_migrate.prove.pairs import pairs
from fsdp_migrate.prove.records import Rank, Run
from fsdp_migrate.prove.tolerance import DRIFT, Tolerance
from fsdp_migrate.verify.verdicts import Verdict
from tests.prove.made import Recorder, Script, mapping, record, value


def losses(folder: Path, *values: float, dtype: str = "float32", clock: float = 0.0, weight: float = 1.0) -> Run:
    """A training with these losses, which saves the time and its weights."""
    recorder = Recorder(folder, 1)
    for step, loss in enumerate(values):
        recorder.add(0, "loss", step, value=loss.hex(), dtype=dtype)
        recorder.add(0, "step", step, lr=[0.1], optimizer=0, skipped=False)
    weights = mapping({"w": recorder.tensor([1.0, weight])})
    recorder.add(0, "save", len(values), api="torch.save", path="a.pt", tree=mapping({"t": value(clock), "w": weights}))
    recorder.add(0, "final", len(values), of="model", index=0, tree=weights)
    return recorder.end()


def verdict(before: Run, again: Run, after: Run, allowed: Tolerance, control: Run | None = None) -> Verdict:
    return verdicts.judge(compare.compare([Phase("training", before, again, after, control)], None, allowed)).verdict


def test_a_tolerance_holds_for_each_element_and_for_noise_too(tmp_path: Path) -> None:
    before, again = losses(tmp_path / "1", 1.0, 0.5), losses(tmp_path / "2", 1.001, 0.5)
    near, far = losses(tmp_path / "3", 1.0, 0.5005, weight=1.001), losses(tmp_path / "4", 1.0, 0.51)
    for allowed in (Tolerance(rtol=2e-3), Tolerance(atol=2e-3)):
        assert verdict(before, again, near, allowed) is Verdict.SAME
        assert verdict(before, again, far, allowed) is Verdict.DIFFERS
    assert verdict(before, again, near, Tolerance(rtol=1e-4)) is Verdict.NO_EVIDENCE
    assert verdict(before, before, near, Tolerance()) is Verdict.DIFFERS


def test_the_first_deviation_has_to_be_that_of_rounding_and_later_ones_that_of_the_control_run(tmp_path: Path) -> None:
    before = losses(tmp_path / "before", 1.0, 1.0, 1.0)
    control = losses(tmp_path / "control", 1.0 + 1e-7, 1.0 + 1e-5, 1.0 + 1e-3, weight=1.0001)
    after = [1.0 + 2e-7, 1.0 + 5e-5, 1.0 + 5e-3]
    assert verdict(before, before, losses(tmp_path / "1", *after, weight=1.0005), DRIFT, control) is Verdict.SAME
    # Without the control run nothing shows that rounding goes as far.
    assert verdict(before, before, losses(tmp_path / "2", *after), DRIFT) is Verdict.DIFFERS
    too_large = {
        "first": losses(tmp_path / "3", 1.0 + 5e-5, 1.0, 1.0),
        "later": losses(tmp_path / "4", after[0], 1.0 + 5e-4, after[2]),
        "weight": losses(tmp_path / "5", *after, weight=1.01),
    }
    for run in too_large.values():
        assert verdict(before, before, run, DRIFT, control) is Verdict.DIFFERS
    assert verdict(before, before, too_large["first"], replace(DRIFT, rtol=1e-4), control) is Verdict.SAME


def test_types_of_half_the_size_may_first_be_one_ulp_apart(tmp_path: Path) -> None:
    before = losses(tmp_path / "1", 1.5, dtype="bfloat16")
    one, two = (losses(tmp_path / f"{ulps} ulps", 1.5 + ulps * 2**-7, dtype="bfloat16") for ulps in (1, 2))
    assert verdict(before, before, one, DRIFT) is Verdict.SAME
    assert verdict(before, before, two, DRIFT) is Verdict.DIFFERS


def test_learning_rates_and_counts_never_drift(tmp_path: Path) -> None:
    before = record(tmp_path / "1", Script(loads=False))
    recorder = losses(tmp_path / "2", 1.0)
    assert verdict(before, before, before, DRIFT, before) is Verdict.SAME
    other = losses(tmp_path / "3", 1.0)
    step = next(recorder.ranks[0].of("step"))
    changed = replace(step, data={**step.data, "lr": [0.1 + 1e-9]})
    events = tuple(changed if event is step else event for event in recorder.ranks[0].events)
    assert verdict(other, other, replace(recorder, ranks={0: Rank(0, events, 0)}), DRIFT) is Verdict.DIFFERS


def test_two_runs_that_drift_apart_as_rounding_does_are_a_control_run_where_that_is_allowed(tmp_path: Path) -> None:
    before, again = losses(tmp_path / "1", 1.0, 1.0), losses(tmp_path / "2", 1.0 + 1e-7, 1.0 + 1e-4)
    after, far = losses(tmp_path / "3", 1.0 + 1e-7, 1.0 + 5e-4), losses(tmp_path / "4", 1.0 + 1e-7, 1.0 + 5e-3)
    assert verdict(before, again, after, DRIFT) is Verdict.SAME
    assert verdict(before, again, far, DRIFT) is Verdict.DIFFERS
    assert verdict(before, again, after, Tolerance()) is Verdict.NO_EVIDENCE
    unseeded = losses(tmp_path / "5", 1.2, 1.1)
    assert verdict(before, unseeded, after, DRIFT) is Verdict.NO_EVIDENCE


def test_values_that_were_not_kept_are_no_evidence_where_something_may_differ(tmp_path: Path) -> None:
    before = record(tmp_path / "1", Script(saved_on=(0, 1)), keep=False)
    after = record(tmp_path / "2", Script(saved_on=(0, 1), nudge=1e-3), keep=False)
    assert verdict(before, before, after, Tolerance(rtol=1e-2)) is Verdict.NO_EVIDENCE
    assert verdict(before, before, after, Tolerance()) is Verdict.DIFFERS


def test_noise_of_one_file_holds_for_later_files_of_its_name(tmp_path: Path) -> None:
    def run(name: str, *clocks: float) -> Run:
        recorder = Recorder(tmp_path / name, 1)
        recorder.add(0, "step", lr=[0.1], optimizer=0, skipped=False)
        for step, clock in enumerate(clocks, 1):
            tree = mapping({"t": value(clock)})
            recorder.add(0, "save", step, api="torch.save", path="a.pt", tree=tree)
        recorder.add(0, "final", 1, of="model", index=0, tree=mapping({}))
        return recorder.end()

    # The second time both were saved in the same second.
    before, again, after = run("1", 5, 6), run("2", 4, 6), run("3", 7, 8)
    assert verdict(before, again, after, Tolerance()) is Verdict.SAME
    assert verdict(before, before, after, Tolerance()) is Verdict.DIFFERS


SCRIPTS = st.builds(
    Script,
    steps=st.integers(0, 3),
    world=st.just(2),
    losses=st.sampled_from([lambda step, rank: 1.0, lambda step, rank: 1.0 + step, lambda step, rank: 2.0 - rank]),
    norms=st.booleans(),
    saved_on=st.sampled_from([(), (0,), (0, 1)]),
    full_on=st.sampled_from([(0,), (0, 1)]),
    key=st.sampled_from(["optimizer", "optim"]),
    loads=st.booleans(),
    nudge=st.sampled_from([0.0, 1e-3]),
    moved=st.integers(0, 2),
)


@contextmanager
def recorded(*scripts: Script) -> Iterator[list[Run]]:
    with tempfile.TemporaryDirectory() as folder:
        yield [record(Path(folder, str(number)), script) for number, script in enumerate(scripts)]


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, SCRIPTS)
def test_differences_are_the_same_from_both_sides(one: Script, other: Script) -> None:
    def seen(before: Run, after: Run) -> list[tuple[object, ...]]:
        found = differences.find(pairs(before, after))
        return sorted((d.kind, d.pair.key.steps, d.rank, d.path, d.trait) for d in found)

    with recorded(one, other) as (before, after):
        assert seen(before, after) == seen(after, before)
        assert not seen(before, before)


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, SCRIPTS)
def test_a_verdict_does_not_depend_on_the_numbers_of_the_ranks(one: Script, other: Script) -> None:
    def renumbered(run: Run) -> Run:
        return replace(run, ranks={1 - number: replace(rank, number=1 - number) for number, rank in run.ranks.items()})

    with recorded(one, other) as (before, after):
        plain = verdict(before, before, after, Tolerance())
        assert verdict(*map(renumbered, (before, before, after)), Tolerance()) is plain


@settings(max_examples=20, deadline=None)
@given(SCRIPTS, SCRIPTS)
def test_no_difference_between_two_runs_of_before_is_held_against_after(one: Script, other: Script) -> None:
    with recorded(one, other) as (before, again):
        assert verdict(before, again, again, Tolerance()) in (Verdict.SAME, Verdict.NO_EVIDENCE)
        assert verdict(before, again, before, Tolerance()) in (Verdict.SAME, Verdict.NO_EVIDENCE)
