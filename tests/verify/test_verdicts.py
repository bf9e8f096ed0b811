from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.verify import Fixture, Verdict
from fsdp_migrate.verify.fixtures import Condition, Differs, Evidence, Fails, Header
from fsdp_migrate.verify.verdicts import Report, judge
from fsdp_migrate.verify.worker.protocol import Difference, Exit, Failure, RankRecord, Side

WARNING = Header(evidence=(Evidence("warning", "old"),))
SEEN, UNSEEN = Side(seen=(True,)), Side(seen=(False,))
FACTS = {"world": 2, "torch": "2.13.0", "use_orig_params": False}


def failure(kind: str, message: str = "", time: float = 1.0) -> Failure:
    return Failure(kind, (kind, "Exception"), message, f"Traceback: {kind}", time)


def record(rank: int, before: Side = SEEN, after: Side | None = UNSEEN, *names: str) -> RankRecord:
    sides = {"before": before} if after is None else {"before": before, "after": after}
    differing = tuple(Difference(name, name, "1", "2") for name in names)
    return RankRecord(rank, "after", sides, differing, 0.1, finished=True)


def report(*ranks: RankRecord, header: Header = WARNING, after: bool = True, **more: Any) -> Report:
    fixture = Fixture("rule/case", Path("before.py"), Path("after.py") if after else None, header)
    return Report(fixture, FACTS, ranks, **more)


def told(given: Report) -> tuple[str, str]:
    judgement = judge(given)
    return judgement.verdict.value, judgement.detail.split("\n")[0]


def test_agreement_with_evidence_is_the_same() -> None:
    assert told(report(record(0), record(1))) == ("SAME", "")


def test_evidence_on_one_rank_is_enough_and_none_is_not() -> None:
    assert told(report(record(0), record(1, UNSEEN)))[0] == "SAME"
    warned = replace(UNSEEN, deprecations=("other is deprecated",))
    assert told(report(record(0, warned), record(1, UNSEEN))) == (
        "NO EVIDENCE",
        'before.py never showed a warning with "old"; it warned: other is deprecated',
    )


def test_a_pair_without_a_header_that_gives_no_warning_is_told_what_to_do() -> None:
    verdict, detail = told(
        report(record(0, UNSEEN), record(1, UNSEEN), header=Header(evidence=(Evidence("deprecation"),)))
    )
    assert verdict == "NO EVIDENCE"
    assert detail.startswith(
        "before.py gives no deprecation warning, or filters it out; if something else shows the old API"
    )


def test_evidence_after_rewriting_is_still_legacy() -> None:
    assert told(report(record(0), record(1, SEEN, SEEN))) == (
        "STILL LEGACY",
        'after.py still shows a warning with "old"',
    )


def test_a_difference_is_told_with_its_rank() -> None:
    assert told(report(record(0), record(1, SEEN, UNSEEN, "osd"))) == ("DIFFERS", "rank 1, osd: 1 -> 2")


@pytest.mark.parametrize(
    ("condition", "names", "verdict"),
    [
        ((), (("osd",), ("osd",)), "AS DECLARED"),
        ((), (("osd",), ()), "NOT AS DECLARED"),
        ((), ((), ()), "NOT AS DECLARED"),
        ((), (("osd", "x"), ("osd",)), "DIFFERS"),
        ((Condition("rank", "!=", "0"),), ((), ("osd",)), "AS DECLARED"),
        ((Condition("rank", "!=", "0"),), (("osd",), ("osd",)), "DIFFERS"),
        ((Condition("use_orig_params", "==", "True"),), ((), ()), "SAME"),
        ((Condition("use_orig_params", "==", "True"),), (("osd",), ("osd",)), "DIFFERS"),
    ],
)
def test_a_declared_difference_holds_exactly_where_it_is_declared(
    condition: tuple[Condition, ...], names: tuple[tuple[str, ...], ...], verdict: str
) -> None:
    header = replace(WARNING, differs=(Differs("osd", condition),))
    ranks = [record(rank, SEEN, UNSEEN, *differing) for rank, differing in enumerate(names)]
    assert told(report(*ranks, header=header))[0] == verdict


def test_an_axis_that_the_scenario_sets_itself_is_the_one_that_counts() -> None:
    header = replace(WARNING, differs=(Differs("osd", (Condition("use_orig_params", "==", "True"),)),))
    fixed = replace(UNSEEN, fixed={"use_orig_params": True})
    assert told(report(record(0, SEEN, fixed, "osd"), record(1, SEEN, fixed, "osd"), header=header))[0] == "AS DECLARED"


def test_what_torch_was_asked_for_counts_unless_a_difference_is_declared() -> None:
    asked = [replace(side, placements=(f"osd(cpu_offload={offload})",)) for side, offload in ((SEEN, 1), (UNSEEN, 0))]
    given = report(record(0, *asked), record(1, *asked))
    assert told(given) == ("DIFFERS", "rank 0, what torch was asked for: osd(cpu_offload=1) -> osd(cpu_offload=0)")
    header = replace(WARNING, differs=(Differs("osd"),))
    assert told(report(record(0, *asked, "osd"), record(1, *asked, "osd"), header=header))[0] == "AS DECLARED"


def test_what_fsdp1_was_asked_for_does_not_count_for_a_program_that_leaves_it() -> None:
    asked = [
        replace(side, placements=placements) for side, placements in ((SEEN, ("osd(rank0_only=1)",)), (UNSEEN, ()))
    ]
    header = replace(WARNING, target="fsdp2")
    assert told(report(record(0, *asked), record(1, *asked), header=header))[0] == "SAME"
    assert told(report(record(0, *asked), record(1, *asked), header=WARNING))[0] == "DIFFERS"


def test_what_torch_was_asked_for_may_be_declared_to_differ_and_then_has_to() -> None:
    asked = [replace(side, placements=(f"osd(rank0_only={only})",)) for side, only in ((SEEN, 0), (UNSEEN, 1))]
    header = replace(WARNING, differs=(Differs("what torch was asked for"),))
    assert told(report(record(0, *asked), record(1, *asked), header=header))[0] == "AS DECLARED"
    assert told(report(record(0), record(1), header=header))[0] == "NOT AS DECLARED"


def test_disagreement_with_the_single_process_run_differs() -> None:
    wrong = replace(UNSEEN, oracle=("osd is 3.7e-02 away from every state",))
    assert told(report(record(0), record(1, SEEN, wrong))) == (
        "DIFFERS",
        "after.py, rank 1: osd is 3.7e-02 away from every state",
    )
    as_ever = replace(SEEN, oracle=wrong.oracle)
    assert told(report(record(0), record(1, as_ever, wrong))) == (
        "DIFFERS",
        "before.py and after.py, rank 1: osd is 3.7e-02 away from every state",
    )


def test_a_difference_is_told_even_where_something_legacy_is_left() -> None:
    still = [record(rank, SEEN, SEEN, *names) for rank, names in ((0, ()), (1, ("osd",)))]
    assert told(report(*still))[0] == "DIFFERS"
    assert told(report(record(0, SEEN, SEEN), record(1, SEEN, SEEN)))[0] == "STILL LEGACY"


@pytest.mark.parametrize(
    ("kinds", "verdict", "detail"),
    [
        (("TypeError", "TypeError"), "FIXED", "before.py raises TypeError: bad"),
        (("TypeError", None), "NOT AS DECLARED", "before.py should raise TypeError, but did not on rank 1"),
        ((None, None), "NOT AS DECLARED", "before.py should raise TypeError, but did not on rank 0"),
        (
            ("KeyError", "KeyError"),
            "NOT AS DECLARED",
            "before.py should raise TypeError, but rank 0 raised KeyError: bad",
        ),
    ],
)
def test_a_declared_failure_happens_on_every_rank(kinds: tuple[str | None, ...], verdict: str, detail: str) -> None:
    header = Header(evidence=(Evidence("raises"),), fails=(Fails("TypeError", (Condition("torch", ">=", "2.1"),)),))
    sides = [Side(failure=failure(kind, "bad"), seen=(True,)) if kind else UNSEEN for kind in kinds]
    assert told(report(*(record(rank, side) for rank, side in enumerate(sides)), header=header)) == (verdict, detail)


def test_a_failure_declared_for_other_releases_is_not_expected_here() -> None:
    header = Header(evidence=(Evidence("raises"),), fails=(Fails("TypeError", (Condition("torch", "<", "2.0"),)),))
    assert told(report(record(0, UNSEEN), record(1, UNSEEN), header=header))[0] == "SAME"


def test_evidence_declared_for_other_releases_is_neither_wanted_nor_in_the_way_here() -> None:
    elsewhere = Header(evidence=(replace(WARNING.evidence[0], when=(Condition("torch", "<", "2.0"),)),))
    assert told(report(record(0, UNSEEN), record(1, UNSEEN), header=elsewhere))[0] == "SAME"
    assert told(report(record(0), record(1, SEEN, SEEN), header=elsewhere))[0] == "SAME"
    here = Header(evidence=(replace(WARNING.evidence[0], when=(Condition("torch", ">=", "2.0"),)),))
    assert told(report(record(0, UNSEEN), record(1, UNSEEN), header=here))[0] == "NO EVIDENCE"


@pytest.mark.parametrize(
    ("failures", "verdict", "detail"),
    [
        (
            {0: failure("ValueError", "bad"), 1: failure("ValueError", "bad")},
            "ERROR",
            "after.py: every rank raised ValueError: bad",
        ),
        ({1: failure("ValueError", "bad")}, "DESYNC", "after.py: rank 1 raised ValueError: bad; rank 0 succeeded"),
        (
            {0: failure("RuntimeError", "Connection closed by peer", 1.0), 1: failure("RuntimeError", "bad", 2.0)},
            "DESYNC",
            "after.py: rank 1 raised RuntimeError: bad; rank 0 raised RuntimeError: Connection closed by peer",
        ),
        (
            {0: failure("KeyError", "x", 2.0), 1: failure("ValueError", "y", 1.0)},
            "DESYNC",
            "after.py: rank 1 raised ValueError: y; rank 0 raised KeyError: x",
        ),
    ],
)
def test_ranks_that_fail_together_are_an_error_and_apart_a_desync(
    failures: dict[int, Failure], verdict: str, detail: str
) -> None:
    ranks = [record(rank, SEEN, replace(UNSEEN, failure=failures.get(rank))) for rank in (0, 1)]
    assert told(report(*ranks)) == (verdict, detail)


def dead(rank: int, *sides: str) -> RankRecord:
    return RankRecord(rank, "after", {"before": SEEN, **dict.fromkeys(sides, UNSEEN)})


def test_a_rank_that_a_signal_ended_is_a_crash_whoever_was_stopped_after_it() -> None:
    ends = {0: Exit(0, 0, -15, asked=True), 1: Exit(1, 0, -11, asked=False)}
    given = report(dead(0), dead(1), exits=ends, stacks={0: "stack", 1: "Fatal Python error: Segmentation fault"})
    assert told(given) == ("CRASH", "after.py: rank 1 was ended by SIGSEGV")


def test_without_exit_codes_a_crash_shows_in_what_was_left_behind() -> None:
    given = report(dead(0), dead(1), stacks={0: "stack", 1: "Fatal Python error: Aborted"})
    assert told(given) == ("CRASH", "after.py: rank 1 died: Aborted")
    assert told(report(dead(0), dead(1), stacks={0: "stack"})) == (
        "CRASH",
        "after.py: rank 1 is gone, without a message",
    )


def test_a_rank_that_ran_out_of_time_is_a_hang_with_all_stacks() -> None:
    waiting = RankRecord(0, "after", {"before": SEEN, "after": Side(failure=failure("RuntimeError", "timed out"))})
    ends = {0: Exit(0, 0, 1, asked=False, abandoned=True), 1: Exit(1, 0, -15, asked=True)}
    judgement = judge(report(waiting, dead(1), exits=ends, stacks={1: "in sleep"}))
    assert judgement.verdict is Verdict.HANG
    assert judgement.detail.split("\n") == [
        "after.py: rank 1 did not finish; rank 0 raised RuntimeError: timed out",
        "rank 1:",
        "in sleep",
        "rank 0:",
        "Traceback: RuntimeError",
    ]


def test_a_reason_to_skip_counts_before_anything_else() -> None:
    skipped = Side(skip="it passes its own process group", seen=(False,))
    assert told(report(record(0, skipped), record(1, skipped))) == ("SKIPPED", "it passes its own process group")


def test_a_program_that_is_not_rewritten_only_shows_its_evidence() -> None:
    given = [record(rank, SEEN, None) for rank in (0, 1)]
    assert told(report(*given, after=False))[0] == "AS DECLARED"
    unseen = [record(rank, UNSEEN, None) for rank in (0, 1)]
    assert told(report(*unseen, after=False))[0] == "NO EVIDENCE"
