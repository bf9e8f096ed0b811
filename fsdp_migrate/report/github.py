"""The report as commands of GitHub Actions, shown at the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.report import Plan, plain
from fsdp_migrate.report.places import in_repository
from fsdp_migrate.report.regions import Region, Regions

LEVELS = {
    Severity.BREAKS: "error",
    Severity.CHANGES: "warning",
    Severity.DEPRECATED: "warning",
    Severity.HINT: "notice",
}


def report(plan: Plan) -> str:
    """One command per line: findings, failed files, project files that were not understood."""
    return "\n".join([*_findings(plan), *_failures(plan)])


def _findings(plan: Plan) -> Iterator[str]:
    for path, members in groupby(plan.findings, lambda finding: finding.path):
        regions = Regions(plan, path)
        for finding in members:
            yield _finding(finding, regions.of(finding))


def _finding(finding: Finding, region: Region) -> str:
    properties = {
        "title": f"{finding.code} ({finding.name})",
        "file": in_repository(finding.path, "GITHUB_WORKSPACE"),
        "line": str(region.line),
        "endLine": str(region.end_line),
    }
    if region.line == region.end_line:  # GitHub takes columns only within one line
        properties |= {"col": str(region.column), "endColumn": str(region.end_column)}
    return _command(LEVELS[finding.severity], properties, plain.finding_line(finding))


def _failures(plan: Plan) -> Iterator[str]:
    for failure in plan.failures:
        properties = {"title": "fsdp-migrate", "file": in_repository(failure.path, "GITHUB_WORKSPACE")}
        yield _command("error", properties, f"{failure.path}: {failure.message}")
    for warning in plan.warnings:
        yield _command("warning", {"title": "fsdp-migrate"}, warning)


def _command(name: str, properties: dict[str, str], text: str) -> str:
    listed = ",".join(f"{key}={_escaped_property(value)}" for key, value in properties.items())
    return f"::{name} {listed}::{_escaped(text)}"


def _escaped(text: str) -> str:
    """`text` as the message of a command, escaped so that it cannot start another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
