"""The report as JUnit XML: a suite for each file with something to report, a case for each finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fsdp_migrate.findings import UNPARSABLE, Finding
from fsdp_migrate.report import Plan, plain
from fsdp_migrate.workspace.filesystem import Failure

# What XML 1.0 has no way to write.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report(plan: Plan) -> str:
    """The document. A finding that does not make the run fail is a skipped case."""
    root = Element("testsuites", {"name": "fsdp-migrate"})
    for path, members in groupby(plan.findings, lambda finding: finding.path):
        suite = SubElement(root, "testsuite", {"name": _clean(path)})
        for finding in members:
            _add_finding(suite, finding, failing=plan.fails(finding))
    for path, failed in groupby(plan.failures, lambda failure: failure.path):
        suite = SubElement(root, "testsuite", {"name": _clean(path)})
        for failure in failed:
            _add_failure(suite, failure)
    if not len(root):
        # Readers take a document without a case for one of a run that never happened.
        suite = SubElement(root, "testsuite", {"name": "fsdp-migrate"})
        SubElement(suite, "testcase", {"name": plain.lint_summary(plan)[0], "classname": "fsdp-migrate"})
    for suite in root:
        _count([suite], suite)
    _count(list(root), root)
    indent(root)
    document: bytes = tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii")


def _add_finding(suite: Element, finding: Finding, *, failing: bool) -> None:
    outcome = "error" if finding.code == UNPARSABLE else "failure" if failing else "skipped"
    name = f"{finding.code} {finding.name} at {plain.shown_place(finding).removeprefix(f'{finding.path}:')}"
    case = SubElement(suite, "testcase", {"name": name, "classname": _clean(finding.path)})
    attributes = {"message": _clean(finding.message), "type": finding.severity.value}
    SubElement(case, outcome, attributes).text = _clean(plain.finding_line(finding))


def _add_failure(suite: Element, failure: Failure) -> None:
    case = SubElement(suite, "testcase", {"name": "fsdp-migrate", "classname": _clean(failure.path)})
    attributes = {"message": _clean(failure.message), "type": "failed"}
    SubElement(case, "error", attributes).text = _clean(plain.failure_line(failure))


def _count(suites: Sequence[Element], into: Element) -> None:
    cases = [case for suite in suites for case in suite.iter("testcase")]
    outcomes = [outcome.tag for case in cases for outcome in case]
    into.set("tests", str(len(cases)))
    into.set("failures", str(outcomes.count("failure")))
    into.set("errors", str(outcomes.count("error")))
    if into.tag == "testsuite":
        into.set("skipped", str(outcomes.count("skipped")))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
