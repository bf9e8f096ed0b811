"""The report as GitLab's code quality artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from fsdp_migrate.findings import Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.report import Plan, plain
from fsdp_migrate.report.places import in_repository
from fsdp_migrate.report.regions import Region, Regions

SEVERITIES = {
    Severity.BREAKS: "critical",
    Severity.CHANGES: "major",
    Severity.DEPRECATED: "minor",
    Severity.HINT: "info",
}


def report(plan: Plan) -> str:
    """A list of issues, one per finding."""
    return json.dumps(list(_issues(plan)), indent=2)


def _issues(plan: Plan) -> Iterator[dict[str, Any]]:
    for path, members in groupby(plan.findings, lambda finding: finding.path):
        where, regions = in_repository(path, "CI_PROJECT_DIR"), Regions(plan, path)
        for finding, key, occurrence in numbered(members, plan.source(path)):
            # GitLab follows a finding from one pipeline to the next by this alone, and shows equal ones once.
            identity = f"{where}\n{key}\n{occurrence}".encode("utf-8", "surrogateescape")
            yield _issue(finding, where, regions.of(finding), hashlib.sha256(identity).hexdigest())


def _issue(finding: Finding, path: str, region: Region, fingerprint: str) -> dict[str, Any]:
    return {
        "type": "issue",
        "check_name": finding.code,
        "description": f"{finding.code}: {finding.message} [{plain.remedy(finding)}]",
        "categories": ["Compatibility"],
        "severity": SEVERITIES[finding.severity],
        "fingerprint": fingerprint,
        "location": {"path": path, "lines": {"begin": region.line, "end": region.end_line}},
    }
