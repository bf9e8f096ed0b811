"""Ranks of one run that do not do the same collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsdp_migrate.prove import collectives
from fsdp_migrate.prove.records import Run
from tests.prove.made import Recorder

ALL = {"group": "0", "kind": "all_reduce", "dtype": "float32", "numel": 1}


def run(folder: Path, *by_rank: list[dict[str, Any]], groups: dict[str, list[int]] | None = None, **ending: Any) -> Run:
    recorder = Recorder(folder, len(by_rank))
    for rank, done in enumerate(by_rank):
        for name, members in (groups or {"0": list(range(len(by_rank)))}).items():
            if rank in members:
                recorder.add(rank, "group", id=name.rstrip("'"), ranks=members)
        for event in done:
            recorder.add(rank, "collective", **event)
    return recorder.end(**ending)


def told(*args: Any, **ending: Any) -> str | None:
    found = collectives.disagreement(run(*args, **ending))
    return str(found) if found else None


def test_equal_sequences_agree_however_they_are_packed(tmp_path: Path) -> None:
    assert told(tmp_path / "1", [ALL, ALL], [{**ALL, "times": 2}]) is None
    assert told(tmp_path / "2", [], []) is None


def test_another_kind_type_size_or_root_is_a_disagreement(tmp_path: Path) -> None:
    for number, change in enumerate(({"kind": "broadcast"}, {"dtype": "int64"}, {"numel": 2})):
        assert told(tmp_path / str(number), [ALL, ALL], [ALL, {**ALL, **change}])
    sent = {**ALL, "kind": "broadcast"}
    assert told(tmp_path / "root", [{**sent, "root": 0}], [{**sent, "root": 1}]) == (
        "collective 1 of the group of ranks 0, 1: rank 0: broadcast of float32[1] from rank 0; "
        "rank 1: broadcast of float32[1] from rank 1"
    )


def test_what_a_rank_does_not_know_disagrees_with_nothing(tmp_path: Path) -> None:
    assert told(tmp_path / "run", [{**ALL, "numel": None}], [{**ALL, "numel": 3, "root": 0}]) is None


def test_messages_between_two_ranks_are_no_collectives_of_all(tmp_path: Path) -> None:
    assert told(tmp_path / "run", [{**ALL, "kind": "send"}, ALL], [{**ALL, "kind": "recv"}, ALL], [ALL]) is None


def test_each_group_has_its_own_sequence(tmp_path: Path) -> None:
    groups = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
    sub = {**ALL, "group": "1"}
    other = {**ALL, "group": "2", "numel": 5}
    assert told(tmp_path / "1", [sub, ALL], [ALL, sub], [ALL], [ALL], groups=groups) is None
    parted = told(tmp_path / "2", [sub], [sub], [other], [{**other, "numel": 6}], groups=groups)
    assert parted is not None
    assert parted.startswith("collective 1 of the group of ranks 2, 3: ")


def test_groups_of_one_name_and_other_members_are_not_the_same(tmp_path: Path) -> None:
    pairs = {"1": [0, 1], "1'": [2, 3]}
    done = [{**ALL, "group": "1"}], [{**ALL, "group": "1", "numel": 4}]
    assert told(tmp_path / "run", done[0], done[0], done[1], done[1], groups=pairs) is None


def test_a_rank_that_ended_without_a_collective_parts_and_one_that_was_cut_off_does_not(tmp_path: Path) -> None:
    assert told(tmp_path / "1", [ALL], [], exits={0: 1, 1: 0}, unended=(0,)) == (
        "collective 1 of the group of ranks 0, 1: rank 0: all_reduce of float32[1]; rank 1: none, it came to its end"
    )
    assert told(tmp_path / "2", [ALL], [], exits={0: 0, 1: 1}, unended=(1,)) is None


def test_a_rank_that_is_about_to_leave_its_group_has_done_all_its_collectives(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    for rank, done in ((0, [ALL, ALL]), (1, [ALL])):
        recorder.add(rank, "group", id="0", ranks=[0, 1])
        for event in done:
            recorder.add(rank, "collective", **event)
    recorder.add(1, "closing")
    found = collectives.disagreement(recorder.end(unended=(0, 1), timed_out=True))
    assert str(found) == (
        "collective 2 of the group of ranks 0, 1: rank 0: all_reduce of float32[1]; rank 1: none, it came to its end"
    )
