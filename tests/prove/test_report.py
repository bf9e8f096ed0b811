"""The conclusion in words, as JSON that its schema describes, and as JUnit XML."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import fromstring

import jsonschema
import pytest
import xmlschema

from fsdp_migrate.prove import compare, report, verdicts
from fsdp_migrate.prove.compare import Changed, Phase
from fsdp_migrate.prove.subject import Rewrite, Subject
from fsdp_migrate.prove.tolerance import DRIFT, Tolerance
from fsdp_migrate.prove.verdicts import Conclusion
from tests.prove.made import Recorder, Script, record
from tests.prove.test_compare import losses

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "prove.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
JUNIT = xmlschema.XMLSchema(str(ROOT / "tests" / "report" / "schemas" / "junit-10.xsd"))
CHANGED = Changed({"train.py": frozenset({40, 41})}, {"train.py": frozenset({40})})


def conclusion(tmp_path: Path, after: Script, *, tolerance: Tolerance | None = None) -> Conclusion:
    before, new = record(tmp_path / "before"), record(tmp_path / "after", after)
    phase = Phase("training", before, before, new)
    return verdicts.judge(compare.compare([phase], CHANGED, tolerance or Tolerance()))


def test_the_text_says_what_was_compared_and_what_else_was_seen(tmp_path: Path) -> None:
    assert report.as_text(conclusion(tmp_path, Script())).splitlines() == [
        "SAME",
        "training: compared on 2 ranks, 3 steps: 6 losses, 6 gradient norms, 6 learning rates, 1 saved file, "
        "2 loaded files, 4 final states, 16 tensors in them",
        "training: seconds: 0.1 -> 0.1 s per step",
        "training: peak memory: 1 -> 1 MiB at most",
        "bound: bitwise",
        "changed lines that ran, before: 1 of 2 (train.py 1 of 2)",
        "changed lines that ran, after: 1 of 1 (train.py 1 of 1)",
    ]


def test_a_difference_stands_in_the_first_line_and_warnings_and_collectives_beside_it(tmp_path: Path) -> None:
    before = record(tmp_path / "before")
    after = Recorder(tmp_path / "after")
    after.add(0, "warning", category="UserWarning", text="slow\nvery")
    text = report.as_text(verdicts.judge(compare.compare([Phase("training", before, before, after.end())])))
    first, *rest = text.splitlines()
    assert first == "DIFFERS training: before step 1, rank 0, loaded file start.pt: only before at train.py:20"
    assert "training: collectives: all_gather_into_tensor 6 -> 0, reduce_scatter_tensor 6 -> 0" in rest
    assert "training: warning gone: FutureWarning: `state_dict_type` is deprecated" in rest
    assert "training: warning new: UserWarning: slow" in rest


def test_drift_is_told_as_a_curve_with_the_bound_that_was_used(tmp_path: Path) -> None:
    before = losses(tmp_path / "1", 1.0, 1.0)
    phase = Phase(
        "training", before, before, losses(tmp_path / "2", 1.0 + 1e-6, 1.0), losses(tmp_path / "3", 1.0, 1.0 + 1e-4)
    )
    text = report.as_text(verdicts.judge(compare.compare([phase], None, DRIFT))).splitlines()
    assert text[0] == "SAME"
    assert (
        "training: within the bound: 1 place, the largest: step 1, rank 0, loss: "
        "1 -> 1.000001, difference 1e-06 (relative 1e-06, allowed 1e-05)" in text
    )
    assert (
        "training: loss of rank 0, relative deviation by step: 1: 1.0e-06, control 0.0e+00; 2: 0.0e+00, control 1.0e-04"
        in text
    )
    assert (
        "bound: first deviation within 1e-05 (float64 1e-12; bfloat16 and float16 one ulp) of the largest value, "
        "later ones within 10 times the control run" in text
    )


@pytest.mark.parametrize(
    "after",
    [Script(), Script(key="optim"), Script(losses=lambda step, rank: float("nan")), Script(steps=0)],
    ids=["same", "key", "nan", "no step"],
)
@pytest.mark.parametrize("tolerance", [Tolerance(), DRIFT, Tolerance(rtol=1e-3)], ids=str)
def test_json_is_what_its_schema_says(after: Script, tolerance: Tolerance, tmp_path: Path) -> None:
    files = {"train.py": ("0" * 64, None)}
    subject = Subject(("train.py", "--tiny"), None, Rewrite("fsdp2", unsafe_fixes=True), files)
    told = replace(conclusion(tmp_path, after, tolerance=tolerance), subject=subject)
    document = json.loads(report.as_json(told))
    VALIDATOR.validate(document)
    assert document["subject"]["files"] == [{"path": "train.py", "before": "0" * 64, "after": None}]
    assert (document["verdict"], document["exit_code"]) == (told.verdict.value, told.exit_code)
    assert document["changed_lines"]["before"] == [{"path": "train.py", "ran": 1, "changed": 2}]


def test_json_names_the_first_difference_by_its_path_and_line(tmp_path: Path) -> None:
    before = record(tmp_path / "before", Script(saved_on=(0, 1)))
    after = record(tmp_path / "after", Script(saved_on=(0, 1), nudge=0.5, moved=3))
    told = verdicts.judge(compare.compare([Phase("training", before, before, after)]))
    (difference, _) = json.loads(report.as_json(told))["phases"][0]["differences"]
    assert difference["path"] == ["optimizer", "state", "layers.0.weight", "exp_avg"]
    assert (difference["absolute"], difference["after_at"]["line"], difference["before_at"]["line"]) == (0.5, 91, 88)
    assert difference["text"].endswith(" at train.py:91 (before: train.py:88)")


def test_lists_are_cut_and_their_length_is_told(tmp_path: Path) -> None:
    before, after = losses(tmp_path / "1", *([1.0] * 150)), losses(tmp_path / "2", *([2.0] * 150))
    told = verdicts.judge(compare.compare([Phase("training", before, before, after)]))
    document = json.loads(report.as_json(told))
    VALIDATOR.validate(document)
    assert document["phases"][0]["totals"]["differences"] == 150
    assert len(document["phases"][0]["differences"]) == 100
    assert told.detail.splitlines()[-1] == "142 more places differ"


@pytest.mark.parametrize(
    ("after", "outcomes"),
    [(Script(), {"tests": "2", "failures": "0", "errors": "0"}),
     (Script(key="optim\x00"), {"tests": "1", "failures": "1", "errors": "0"}),
     (Script(only_on_rank_0=True), {"tests": "1", "failures": "0", "errors": "1"})],
    ids=["same", "differs", "desync"],
)  # fmt: skip
def test_junit_has_a_case_for_each_phase(after: Script, outcomes: dict[str, str], tmp_path: Path) -> None:
    document = report.as_junit(conclusion(tmp_path, after))
    JUNIT.validate(document)
    root = fromstring(document)
    assert {name: root.attrib[name] for name in outcomes} == outcomes
    assert root[0][0].attrib["name"] == "training"


def test_a_second_phase_is_told_even_where_the_first_decides(tmp_path: Path) -> None:
    before, after = record(tmp_path / "before"), record(tmp_path / "after", Script(key="optim"))
    fallen = replace(after, exit=1, ranks={0: replace(after.ranks[0], exit=1)})
    phases = [Phase("training", before, before, after), Phase("resumed", before, before, fallen)]
    text = report.as_text(verdicts.judge(compare.compare(phases))).splitlines()
    assert text[0].startswith("DIFFERS training: ")
    assert "resumed: CRASH: rank 0, after step 3: ended with exit code 1" in text
