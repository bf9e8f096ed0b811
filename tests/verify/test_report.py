from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from fsdp_migrate.verify import Fixture, Outcome, Result, Verdict
from fsdp_migrate.verify.axes import Axis, points
from fsdp_migrate.verify.fixtures import Header
from fsdp_migrate.verify.harness import LaneRun
from fsdp_migrate.verify.report import FORMATS, Bar
from fsdp_migrate.verify.verdicts import Judgement

ONE = Fixture("rule/one", Path("/f/one/before.py"), Path("/f/one/after.py"), Header(rules=("FSDP101",)))
TWO = Fixture("rule/two", Path("/f/two/before.py"), None)

OTHER = Fixture("other/three", Path("/f/three/before.py"), None)


def result(
    fixture: Fixture, verdict: Verdict, detail: str = "", *, original: bool = False, torch: str = "2.13.0"
) -> Result:
    return Result(fixture, Axis(2, original), torch, "cpu", Judgement(verdict, detail), 0.25, checked=3)


def outcome(*results: Result) -> Outcome:
    return Outcome(list(results), [LaneRun("2.13.0", 2, "cpu", ("a copy that is none",))])


SAME = [result(ONE, Verdict.SAME), result(ONE, Verdict.SAME, original=True)]
DIFFERS = result(TWO, Verdict.DIFFERS, "rank 1, osd: {} -> dict\nmore\nand more")


def test_what_is_fine_takes_a_line_and_what_is_not_is_told_whole() -> None:
    assert FORMATS["text"](outcome(*SAME, DIFFERS), 1.26).split("\n") == [
        "torch 2.13.0, 2 ranks on cpu (gloo)",
        "  worked around in torch: a copy that is none",
        "SAME            rule/one [torch 2.13.0, 2 ranks, 2 configurations]",
        "DIFFERS         rule/two [torch 2.13.0, 2 ranks, FULL_SHARD, use_orig_params=False, AdamW]: "
        "rank 1, osd: {} -> dict",
        "    more",
        "    and more",
        "2 fixtures, 3 runs in 1.3 s: 2 SAME, 1 DIFFERS",
    ]


def test_a_run_that_is_fine_says_how_much_a_single_process_confirmed() -> None:
    assert FORMATS["text"](outcome(*SAME), 1).split("\n")[-1] == "2 of 2 also agree with a single process"


def test_a_run_that_a_single_process_does_not_follow_is_no_disagreement() -> None:
    told = FORMATS["text"](outcome(SAME[0], replace(SAME[1], checked=0)), 1).split("\n")[-1]
    assert told == "1 of 2 also agree with a single process; the others were not compared with one"


def test_runs_that_fail_alike_are_told_once_and_others_one_by_one() -> None:
    alike = [result(ONE, Verdict.ERROR, "every rank\nmore", original=original) for original in (False, True)]
    told = FORMATS["text"](outcome(*alike), 1).split("\n")
    assert told[2:-1] == ["ERROR           rule/one [torch 2.13.0, 2 ranks, 2 configurations]: every rank", "    more"]
    other = result(ONE, Verdict.ERROR, "every rank\nless", original=True)
    assert FORMATS["text"](outcome(alike[0], other), 1).count("ERROR           rule/one") == 2


def test_what_would_repeat_another_run_is_counted_apart_from_what_was_skipped() -> None:
    repeat = result(ONE, Verdict.SKIPPED, "does not depend on use_orig_params", original=True)
    assert FORMATS["text"](outcome(SAME[0], repeat), 1).split("\n")[-3:] == [
        "1 fixture, 1 run in 1.0 s: 1 SAME",
        "1 of 1 also agree with a single process",
        "1 run left out: the programs do not depend on the options that differ there",
    ]


def test_json_has_one_object_for_each_run() -> None:
    told = json.loads(FORMATS["json"](outcome(SAME[0], DIFFERS), 1.25))
    assert (told["schema_version"], told["succeeded"], told["errors"]) == (1, False, [])
    assert told["runs"] == [
        {"torch": "2.13.0", "world": 2, "device": "cpu", "workarounds": ["a copy that is none"]},
    ]
    assert told["results"][0] == {
        "fixture": "rule/one",
        "rules": ["FSDP101"],
        "torch": "2.13.0",
        "world": 2,
        "device": "cpu",
        "axis": {"use_orig_params": False, "strategy": "FULL_SHARD", "optimizer": "AdamW"},
        "verdict": "SAME",
        "fine": True,
        "seconds": 0.25,
        "checked_by_oracle": 3,
        "unchecked": None,
        "detail": "",
    }
    assert told["results"][1]["detail"] == "rank 1, osd: {} -> dict\nmore\nand more"


def test_the_table_counts_the_worst_verdict_of_each_fixture_by_rule_and_release() -> None:
    skipped = result(TWO, Verdict.SKIPPED, "needs torch>=2.2, this is 2.1.2", torch="2.1.2+cu121")
    fixed = result(ONE, Verdict.FIXED, torch="2.1.2+cu121")
    other = result(OTHER, Verdict.SAME)
    table = FORMATS["markdown"](outcome(fixed, *SAME, skipped, DIFFERS, other), 1).split("\n")
    assert table[:4] == [
        "| rule | 2.1.2 | 2.13.0 |",
        "|---|---|---|",
        "| rule | 1 FIXED, 1 SKIPPED | 1 SAME, 1 DIFFERS |",
        "| other | - | 1 SAME |",
    ]
    assert table[-1].startswith("* DIFFERS         rule/two [torch 2.13.0")


def test_success_needs_a_run_and_nothing_that_is_not_fine() -> None:
    skipped = result(ONE, Verdict.SKIPPED, "needs 4 GPUs, this machine has 1")
    assert outcome(*SAME, skipped).succeeded
    assert not outcome(skipped).succeeded
    assert not outcome(*SAME, DIFFERS).succeeded
    assert not Outcome([*SAME], [], ["/other/python: torch is not installed"]).succeeded
    assert "nothing ran: there is no evidence" in FORMATS["text"](outcome(skipped), 1)


def test_the_bar_fills_up_and_leaves_nothing_on_the_terminal() -> None:
    stream = io.StringIO()
    bar = Bar(stream)
    bar.begin(2, "torch 2.13.0, 2 ranks on cpu")
    bar.step(ONE, Axis(2, False))
    bar.end()
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown[1].startswith("torch 2.13.0, 2 ranks on cpu [........................] 0/2")
    assert shown[2] == "torch 2.13.0, 2 ranks on cpu [############............] 1/2 rule/one"
    assert shown[-1] == ""


def test_the_full_axes_have_every_combination_that_the_world_size_allows() -> None:
    assert [axis.use_orig_params for axis in points(2)] == [False, True]
    two, four = points(2, full=True), points(4, full=True)
    assert (len(two), len(four)) == (12, 16)
    assert {axis.strategy for axis in four} - {axis.strategy for axis in two} == {"HYBRID_SHARD"}
