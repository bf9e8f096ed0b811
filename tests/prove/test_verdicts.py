"""From records to a verdict: a training of which the migration broke one thing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.prove import compare, verdicts
from fsdp_migrate.prove.compare import Changed, Phase
from fsdp_migrate.prove.records import Run
from fsdp_migrate.prove.tolerance import Tolerance
from fsdp_migrate.prove.verdicts import Conclusion
from fsdp_migrate.verify.verdicts import Verdict
from tests.prove.made import Recorder, Script, mapping, record, value

BEFORE = Script()
SAVING = Script(saved_on=(0, 1))


def concluded(tmp_path: Path, after: Script, before: Script = BEFORE, *, again: Script | None = None) -> Conclusion:
    runs = [record(tmp_path / name, script) for name, script in (("1", before), ("2", again or before), ("3", after))]
    return judged(Phase("training", *runs))


def judged(
    *phases: Phase, changed: Changed | None = None, tolerance: Tolerance | None = None, missing: str | None = None
) -> Conclusion:
    return verdicts.judge(compare.compare(phases, changed, tolerance or Tolerance()), missing)


def test_where_before_alone_ran_the_reason_is_told(tmp_path: Path) -> None:
    idle = Recorder(tmp_path / "idle")
    started = Recorder(tmp_path / "own-ranks")
    runs = idle.end(), replace(started.end(), problems=("the program starts ranks of its own",))
    told = [judged(Phase("training", run)) for run in runs]
    assert [conclusion.verdict for conclusion in told] == [Verdict.NO_EVIDENCE] * 2
    assert told[0].detail == "no optimizer took a step: start the program so that it trains"
    assert told[1].detail == "the record of before cannot be used: the program starts ranks of its own"


def test_an_exit_without_a_traceback_is_told_with_what_was_printed_last(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", world=1)
    (tmp_path / "run" / "output-0.txt").write_text("python: No module named lib\n\n")
    told = judged(Phase("training", recorder.end(exits={0: 1}))).detail
    assert told.endswith(": ended with exit code 1; it printed last: python: No module named lib")


def test_runs_that_agree_in_everything_are_the_same(tmp_path: Path) -> None:
    conclusion = concluded(tmp_path, replace(BEFORE, moved=2))
    assert (conclusion.verdict, conclusion.detail, conclusion.exit_code) == (Verdict.SAME, "", 0)
    assert conclusion.comparison.phases[0].counts == {
        "loss": 6, "norm": 6, "step": 6, "load": 2, "save": 1, "final": 4, "tensors": 2 * 2 + 4 + 2 * 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        # rank0_only flipped: rank 1 gets nothing to save.
        (SAVING, replace(SAVING, full_on=(0,)), "after step 3, rank 1, saved file last.pt: keys of model, "
         "only before: layers.0.weight, layers.0.bias at train.py:88"),
        (BEFORE, replace(BEFORE, norms=False), "step 1, rank 0, gradient norm: only before at train.py:46"),
        # An optimizer over parameters that no model has: the first loss is still the old one.
        (BEFORE, replace(BEFORE, losses=lambda step, rank: 2.0 + rank / 8),
         "step 2, rank 0, loss: 1 -> 2, difference 1 at train.py:44"),
        (BEFORE, replace(BEFORE, key="optim"), "after step 3, rank 0, saved file last.pt: keys, "
         "only before: optimizer; only after: optim at train.py:88"),
        (BEFORE, replace(BEFORE, loads=False),
         "before step 1, rank 0, loaded file start.pt: only before at train.py:20"),
        (SAVING, replace(SAVING, nudge=2e-3), "after step 3, rank 1, saved file last.pt: "
         "optimizer.state.layers.0.weight.exp_avg, largest difference 0.002 at train.py:88"),
    ],
    ids=["rank0_only", "clip", "optimizer", "key", "load", "value"],
)  # fmt: skip
def test_the_first_difference_is_told_where_it_arises(before: Script, after: Script, told: str, tmp_path: Path) -> None:
    conclusion = concluded(tmp_path, after, before)
    assert (conclusion.verdict, conclusion.exit_code) == (Verdict.DIFFERS, 1)
    assert conclusion.detail.splitlines()[0] == told


def test_a_collective_on_one_rank_only_is_a_desync_and_not_a_hang(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = record(tmp_path / "after", replace(BEFORE, only_on_rank_0=True))
    stuck = replace(after, timed_out=True, exit=1)
    for run in (after, stuck):
        conclusion = judged(Phase("training", before, before, run))
        assert conclusion.verdict is Verdict.DESYNC
        assert conclusion.detail.splitlines()[0] == (
            "collective 4 of the group of ranks 0, 1: rank 0: all_reduce of float32[1] at train.py:50; "
            "rank 1: reduce_scatter_tensor of float32[10] at train.py:44"
        )


def test_two_runs_of_before_that_differ_in_their_losses_claim_nothing(tmp_path: Path) -> None:
    other = replace(BEFORE, losses=lambda step, rank: 3.0)
    conclusion = concluded(tmp_path, replace(BEFORE, key="optim"), again=other)
    first, advice, *besides = conclusion.detail.splitlines()
    assert (conclusion.verdict, conclusion.exit_code) == (Verdict.NO_EVIDENCE, 1)
    assert first == (
        "two runs of before differ, so nothing is claimed: step 1, rank 0, loss: 2 -> 3, difference 1 at train.py:44"
    )
    assert "--deterministic" in advice
    assert besides == [
        "seen besides: after step 3, rank 0, saved file last.pt: keys, only before: optimizer; only after: optim "
        "at train.py:88"
    ]


def test_what_does_not_help_is_not_advised(tmp_path: Path) -> None:
    before, again = record(tmp_path / "1"), record(tmp_path / "2", replace(BEFORE, losses=lambda step, rank: 3.0))
    start, *others = before.ranks[0].events
    seeded = replace(start, data={**start.data, "deterministic": True})
    ranks = {**before.ranks, 0: replace(before.ranks[0], events=(seeded, *others))}
    conclusion = judged(Phase("training", replace(before, ranks=ranks), again, before))
    assert conclusion.detail.splitlines()[1].startswith("--deterministic did not help: ")


def saving(tmp_path: Path, name: str, clock: float, saved: object = 1) -> Run:
    """A training that saves the time, and something else."""
    recorder = Recorder(tmp_path / name, 1)
    recorder.add(0, "loss", value="0x1p0", dtype="float32")
    recorder.add(0, "step", lr=[0.1], optimizer=0, skipped=False)
    tree = mapping({"time": value(clock), "epoch": value(saved)})
    recorder.add(0, "save", 1, ("train.py", 9), api="torch.save", path="last.pt", tree=tree)
    recorder.add(0, "final", 1, of="model", index=0, tree=mapping({"w": recorder.tensor([1.0])}))
    return recorder.end()


def test_what_two_runs_of_before_save_differently_is_named_and_not_held_against_after(tmp_path: Path) -> None:
    before, again = saving(tmp_path, "1", 10.0), saving(tmp_path, "2", 11.5)
    same = judged(Phase("training", before, again, saving(tmp_path, "3", 17.0)))
    assert same.verdict is Verdict.SAME
    (noise,) = same.comparison.phases[0].noise
    assert (noise.path, noise.before, noise.after) == (("time",), "10", "11.5")
    differs = judged(Phase("training", before, again, saving(tmp_path, "4", 17.0, saved=2)))
    assert differs.verdict is Verdict.DIFFERS
    assert differs.detail == "after step 1, rank 0, saved file last.pt: epoch, 1 -> 2, difference 1 at train.py:9"


def broken(tmp_path: Path, name: str, exits: dict[int, int | None], **ending: Any) -> Run:
    recorder = Recorder(tmp_path / name)
    for rank in exits:
        recorder.add(rank, "group", id="0", ranks=[0, 1])
        recorder.add(rank, "collective", 0, ("train.py", 7), group="0", kind="barrier")
    for number, text in ending.pop("outputs", {}).items():
        (recorder.folder / f"output-{number}.txt").write_text(text)
    for number, text in ending.pop("stacks", {}).items():
        (recorder.folder / f"stacks-{number}.txt").write_text(text)
    return recorder.end(exits=exits, unended=tuple(exits), **ending)


RAISED = """starting
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 7, in <module>
[rank1]:     model.gone()
[rank1]: AttributeError: no gone
more
"""
ECHO = 'Traceback (most recent call last):\n  File "x.py", line 1\nRuntimeError: Connection closed by peer\n'


def test_a_rank_that_raises_is_a_crash_with_its_traceback_whatever_the_others_say_of_it(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = broken(tmp_path, "after", {0: 1, 1: 1}, outputs={0: ECHO, 1: RAISED})
    conclusion = judged(Phase("training", before, before, after))
    assert conclusion.verdict is Verdict.CRASH
    assert conclusion.detail == (
        "rank 1, before the first step was taken: AttributeError: no gone\n"
        "rank 1:\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 7, in <module>\n'
        "    model.gone()\n"
        "AttributeError: no gone"
    )


def test_what_differs_before_a_crash_is_told_with_it_and_what_the_crash_cut_off_is_not(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    for name, script in (("same", BEFORE), ("other", replace(BEFORE, losses=lambda step, rank: 3.0))):
        after = record(tmp_path / name, script)
        cut = {
            number: replace(rank, events=rank.events[:12], exit=1, output=RAISED)
            for number, rank in after.ranks.items()
        }
        conclusion = judged(Phase("training", before, before, replace(after, ranks=cut, exit=1)))
        assert conclusion.verdict is Verdict.CRASH
        told = conclusion.detail.splitlines()[1]
        assert told.startswith("before that: step 1, rank 0, loss: 2 -> 3" if name == "other" else "rank 0:")


def test_a_rank_that_a_signal_ends_is_a_crash(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = broken(tmp_path, "after", {0: None, 1: -signal.SIGSEGV})
    conclusion = judged(Phase("training", before, before, after))
    assert (conclusion.verdict, conclusion.detail) == (
        Verdict.CRASH,
        "rank 1, before the first step was taken: was ended by SIGSEGV",
    )


def test_a_signal_behind_the_end_of_a_rank_is_no_crash(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    ranks = {number: replace(rank, exit=-signal.SIGABRT) for number, rank in before.ranks.items()}
    after = replace(before, exit=1, ranks=ranks)
    assert judged(Phase("training", before, before, after)).verdict is Verdict.SAME
    assert judged(Phase("training", after, after, before)).verdict is Verdict.SAME
    code = replace(after, ranks={number: replace(rank, exit=3) for number, rank in ranks.items()})
    assert judged(Phase("training", before, before, code)).verdict is Verdict.CRASH


def test_a_run_out_of_time_is_a_hang_with_all_stacks(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    stacks = {0: "File train.py line 7 in wait\n", 1: "File train.py line 9 in read\n"}
    after = broken(tmp_path, "after", {0: None, 1: None}, timed_out=True, stacks=stacks)
    conclusion = judged(Phase("training", before, before, after))
    assert conclusion.verdict is Verdict.HANG
    assert conclusion.detail.splitlines() == [
        "rank 0 did not end, before the first step was taken, last seen at train.py:7 (barrier); "
        "rank 1 did not end, before the first step was taken, last seen at train.py:7 (barrier)",
        "stacks of rank 0:",
        "File train.py line 7 in wait",
        "stacks of rank 1:",
        "File train.py line 9 in read",
    ]


def test_where_before_does_not_run_nothing_is_claimed(tmp_path: Path) -> None:
    fallen = broken(tmp_path, "before", {0: 1, 1: None}, outputs={0: RAISED})
    for phase in (Phase("training", fallen), Phase("training", fallen, fallen, fallen)):
        conclusion = judged(phase)
        assert conclusion.verdict is Verdict.NO_EVIDENCE
        assert conclusion.detail.startswith("before itself does not run to its end: CRASH: rank 0, ")


def lacking(tmp_path: Path, change: Callable[[Recorder], None]) -> Conclusion:
    recorder = Recorder(tmp_path / "after", 1)
    change(recorder)
    run = recorder.end()
    return judged(Phase("training", run, run, run))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"kind": "fault", "where": "final state", "text": "no model"},
         "before, rank 0: the recorder failed in final state: no model"),
        ({"kind": "outside", "module": "lib.data", "file": "/src/lib/data.py"},
         "before, rank 0: the module lib.data came from /src/lib/data.py, which is not the copy that should run"),
        ({"kind": "loss", "value": "0x1p0", "dtype": "float32"},
         "no optimizer took a step: start the program so that it trains"),
        ({"kind": "step", "lr": [0.1], "optimizer": 0, "skipped": True},
         "no optimizer took a step: start the program so that it trains"),
        ({"kind": "step", "lr": [0.1], "optimizer": 0, "skipped": False}, "no final state was recorded"),
    ],
)  # fmt: skip
def test_what_keeps_a_run_from_being_evidence_is_said(event: dict[str, Any], told: str, tmp_path: Path) -> None:
    conclusion = lacking(tmp_path, lambda recorder: recorder.add(0, event.pop("kind"), **event))
    assert (conclusion.verdict, conclusion.detail) == (Verdict.NO_EVIDENCE, told)


def test_a_module_from_outside_outweighs_whatever_was_seen(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = Recorder(tmp_path / "after")
    after.add(0, "outside", module="lib", file="/src/lib.py")
    conclusion = judged(Phase("training", before, before, after.end(exits={0: 1, 1: 1})))
    assert (conclusion.verdict, conclusion.detail[:6]) == (Verdict.NO_EVIDENCE, "after,")


def test_a_changed_line_has_to_run(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    phase = Phase("training", run, run, run)
    cold = Changed({"train.py": frozenset({3})}, {"train.py": frozenset({3, 4}), "other.py": frozenset()})
    conclusion = judged(phase, changed=cold)
    assert (conclusion.verdict, conclusion.detail) == (
        Verdict.NO_EVIDENCE,
        "none of the 3 changed lines ran: start the program so that it gets to one of them",
    )
    warm = Changed({"train.py": frozenset({40})}, {"train.py": frozenset({3, 4})})
    assert judged(phase, changed=warm).verdict is Verdict.SAME
    assert judged(phase, changed=warm).comparison.coverage.before == {"train.py": (1, 1)}


def test_a_difference_counts_even_where_no_changed_line_ran(tmp_path: Path) -> None:
    before, after = record(tmp_path / "1"), record(tmp_path / "2", replace(BEFORE, key="optim"))
    changed = Changed({}, {"train.py": frozenset({3})})
    assert judged(Phase("training", before, before, after), changed=changed).verdict is Verdict.DIFFERS


def test_a_stop_without_a_checkpoint_is_no_evidence_for_resuming(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    conclusion = judged(Phase("training", run, run, run), missing="nothing was saved by step 3")
    assert (conclusion.verdict, conclusion.detail) == (Verdict.NO_EVIDENCE, "nothing was saved by step 3")


def test_a_second_start_that_loads_nothing_is_no_evidence(tmp_path: Path) -> None:
    run, idle = record(tmp_path / "run"), record(tmp_path / "idle", replace(BEFORE, loads=False))
    conclusion = judged(Phase("training", run, run, run), Phase("resumed", idle, idle, idle, resumes=True))
    assert (conclusion.verdict, conclusion.phase) == (Verdict.NO_EVIDENCE, "resumed")
    assert conclusion.detail.startswith("the second start of before loaded no checkpoint")


def test_what_is_seen_in_the_first_phase_wins_and_evidence_of_any_phase_is_enough(tmp_path: Path) -> None:
    run, other = record(tmp_path / "run"), record(tmp_path / "other", replace(BEFORE, key="optim"))
    fallen = broken(tmp_path, "fallen", {0: 1, 1: None}, outputs={0: RAISED})
    fine, differs = Phase("first", run, run, run), Phase("second", run, run, other)
    crashes = Phase("third", run, run, fallen)
    assert judged(fine, differs, crashes).phase == "second"
    assert judged(fine, crashes, differs).verdict is Verdict.CRASH
    idle = Phase("training", *[record(tmp_path / "idle", replace(BEFORE, steps=0))] * 3)
    assert judged(idle, differs).phase == "second"


def test_ranks_that_part_before_the_migration_too_are_left_alone(tmp_path: Path) -> None:
    parted = record(tmp_path / "run", replace(BEFORE, only_on_rank_0=True))
    assert judged(Phase("training", parted, parted, parted)).verdict is Verdict.SAME
