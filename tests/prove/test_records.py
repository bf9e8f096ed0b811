"""Reading the record of a run: what is broken, missing or of another version is told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fsdp_migrate.prove import records
from tests.prove.made import Recorder, record


def test_a_whole_record_has_no_problems(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    assert (run.problems, run.exit, run.timed_out, run.steps) == ((), 0, False, 3)
    assert [rank.ended for rank in run.ranks.values()] == [True, True]
    assert str(next(run.ranks[0].of("loss")).at) == "train.py:44"


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "rank-1.jsonl"
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return apply


def launch(**change: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "launch.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    return apply


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "launch.json").unlink(),
         "launch.json: cannot be read (No such file or directory): the run did not end"),
        (launch(ranks=3), "launch.json: cannot be read ('int' object has no attribute 'items'): the run did not end"),
        (launch(format=2), "launch.json: has the format 2, this version reads 1: run `prove` again"),
        (lambda folder: (folder / "rank-1.jsonl").unlink(),
         "rank-1.jsonl: cannot be read (No such file or directory): this rank recorded nothing"),
        (lines(lambda all_: []),
         "rank-1.jsonl: has no end: the program left without one (it was killed, or ended outside of Python)"),
        (lines(lambda all_: [*all_[:4], all_[4][:20]]), "rank-1.jsonl, line 5: is cut off"),
        (lines(lambda all_: all_[:-1]),
         "rank-1.jsonl: has no end: the program left without one (it was killed, or ended outside of Python)"),
        (lines(lambda all_: [*all_[:4], "{}\n", *all_[5:]]), "rank-1.jsonl, line 5: is no event (no 'e')"),
        (lines(lambda all_: [*all_[:4], "[]\n", *all_[5:]]),
         "rank-1.jsonl, line 5: is no event (list indices must be integers or slices, not str)"),
        (lines(lambda all_: [*all_[:4], '{"e": "dance", "n": 5}\n']), "rank-1.jsonl, line 5: is no event (no 'dance')"),
        (lines(lambda all_: [all_[0], '{"e": "norm", "n": 2, "value": "x"}\n']),
         "rank-1.jsonl, line 2: is no event (invalid hexadecimal floating-point string)"),
        (lines(lambda all_: [all_[0], '{"e": "final", "n": 2, "of": "model", "index": 0, "tree": {"t": "x"}}\n']),
         "rank-1.jsonl, line 2: is no event (a node of the kind 'x')"),
        (lines(lambda all_: [*all_[:4], *all_[5:]]), "rank-1.jsonl, line 5: event 6 follows event 4"),
        (lines(lambda all_: [all_[0].replace('"format": 1', '"format": 7'), *all_[1:]]),
         "rank-1.jsonl: has the format 7, this version reads 1: run `prove` again"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(damage: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    record(tmp_path / "run")
    damage(tmp_path / "run")
    assert records.read(tmp_path / "run").problems == (told,)


def test_steps_are_those_of_the_first_optimizer_that_were_not_skipped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", 1)
    for optimizer, skipped in ((0, True), (0, False), (1, False), (0, False)):
        recorder.add(0, "step", lr=[0.1], optimizer=optimizer, skipped=skipped)
    assert recorder.end().steps == 2


def test_what_was_recorded_before_the_damage_is_kept(tmp_path: Path) -> None:
    record(tmp_path / "run")
    lines(lambda all_: [*all_[:4], "?\n"])(tmp_path / "run")
    assert len(records.read(tmp_path / "run").ranks[1].events) == 4


def test_a_rank_that_the_launcher_ended_has_no_exit_code_of_its_own(tmp_path: Path) -> None:
    record(tmp_path / "run")
    launch(ranks={"0": 1, "1": -15}, stopped=[1])(tmp_path / "run")
    run = records.read(tmp_path / "run")
    assert [rank.exit for rank in run.ranks.values()] == [1, None]
