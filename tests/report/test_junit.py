from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import xmlschema

from fsdp_migrate.findings import Severity
from fsdp_migrate.report import Plan, junit
from fsdp_migrate.workspace.filesystem import Failure
from tests.report.plans import BROKEN, HEAD, HINT, HOSTILE, HOSTILE_PATH, SAFE, linted

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "schemas" / "junit-10.xsd"))


def suites(plan: Plan) -> Element:
    """The document of a run, which the schema of Jenkins accepts."""
    document = junit.report(plan)
    SCHEMA.validate(document)
    return fromstring(document)


def test_a_finding_is_a_failed_case_in_the_suite_of_its_file() -> None:
    root = suites(linted({"src/a.py": HEAD + SAFE + SAFE, "b.py": HEAD}))
    assert root.attrib == {"name": "fsdp-migrate", "tests": "2", "failures": "2", "errors": "0"}
    (suite,) = root
    assert suite.attrib == {"name": "src/a.py", "tests": "2", "failures": "2", "errors": "0", "skipped": "0"}
    case = suite[0]
    assert case.attrib == {"name": "FSDP101 full-optim-state-dict at 2:9", "classname": "src/a.py"}
    (failure,) = case
    assert (failure.tag, failure.attrib["type"]) == ("failure", "deprecated")
    assert failure.attrib["message"].startswith("`full_optim_state_dict` is deprecated")
    assert failure.text is not None
    assert failure.text.startswith("src/a.py:2:9: FSDP101 ")
    assert failure.text.endswith("[deprecated, fixable]")


def test_files_that_fail_are_errors() -> None:
    plan = linted({"a.py": HEAD + BROKEN, "b.py": HEAD.encode() + b"# \xff"})
    assert plan.failures
    root = suites(plan)
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("2", "0", "2")
    assert [outcome.tag for outcome in root.iter("error")] == ["error", "error"]


def test_what_does_not_fail_the_run_is_skipped() -> None:
    (hint,) = suites(linted({"a.py": HEAD + HINT}, hints=True)).iter("testcase")
    assert [outcome.tag for outcome in hint] == ["skipped"]
    root = suites(linted({"a.py": HEAD + SAFE}, fail_on=Severity.BREAKS))
    assert (root.attrib["failures"], root[0].attrib["skipped"]) == ("0", "1")


def test_a_clean_run_has_one_case_that_passed() -> None:
    root = suites(linted({"a.py": HEAD}))
    assert (root.attrib["tests"], root.attrib["failures"]) == ("1", "0")
    (case,) = root.iter("testcase")
    assert (case.attrib["name"], len(case)) == ("No findings in 1 file; hints were not looked for (--hints).", 0)


def test_hostile_names_and_texts_make_no_element_and_no_forbidden_character() -> None:
    plan = linted({HOSTILE_PATH: HOSTILE})
    failure = Failure("x<y>\x00\ud800\ufffe.py", "]]>&\x1b\x0b")
    root = suites(Plan(torch=plan.torch, findings=plan.findings, failures=(failure,)))
    assert root[0].attrib["name"].startswith("a\ufffd::error::b\ufffd%0A,c]]>d\ufffd[31m\ufffd&<e>")
    assert root[1].attrib["name"] == "x<y>\ufffd\ufffd\ufffd.py"
    assert root[1][0][0].attrib["message"] == "]]>&\ufffd\ufffd"
