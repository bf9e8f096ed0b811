"""The report as JSON, for programs. `SCHEMA_VERSION` rises when a field changes its meaning or is removed.

`torch` is the range of the findings, null if the projects support several. `torch_ranges` are the ranges by project,
without projects in which no file was worth reading. With a baseline, `known` counts the findings in it, and
`no_longer_there` names its entries that are gone. `floors` says how many findings a higher lower bound of torch would
settle, for each project that states one; hints are not counted. With a trace, `trace` says what became of it, and a
finding has `ran` (whether the code ran; without it that is not known) and `by_run` (whether only the run shows it).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from fsdp_migrate._version import __version__
from fsdp_migrate.findings import Finding
from fsdp_migrate.report import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fsdp_migrate.report.floor_summary import FloorSummary
    from fsdp_migrate.rules.card import RuleCard
    from fsdp_migrate.rules.catalogue import TorchChange

SCHEMA_VERSION = 1


def lint_report(plan: Plan, *, statistics: bool = False) -> str:
    """The findings of a plan."""
    document = _document(plan)
    if statistics:
        counts = Counter((finding.code, finding.name) for finding in plan.findings)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        document["statistics"] = [{"code": code, "name": name, "count": count} for (code, name), count in ordered]
    return _dump(document)


def lines(plan: Plan) -> str:
    """The findings, one object per line."""
    return "\n".join(json.dumps(finding(one)) for one in plan.findings)


def rewrite_report(plan: Plan, patches: Mapping[str, bytes] | None = None) -> str:
    """What a rewrite fixed (`fixed`, positions in the old text) and left (`findings`, positions in the new text).

    If nothing was written, `patches` are the diffs by path. Bytes that are not UTF-8 become lone surrogates, as with
    Python's `surrogateescape`.
    """
    fixed = [finding(one) for one in plan.fixed]
    document = _document(plan) | {"fixed": fixed, "files_changed": list(plan.changed)}
    if patches is not None:
        document["diffs"] = {path: patch.decode("utf-8", "surrogateescape") for path, patch in patches.items()}
    return _dump(document)


def ranges_report(plan: Plan) -> str:
    """The projects with their torch ranges."""
    document = _document(plan)
    wanted = ("schema_version", "tool_version", "torch", "torch_ranges", "notes", "warnings", "errors")
    sources = {project.root: project.source for project in plan.projects}
    return _dump({key: document[key] for key in wanted} | {"torch_sources": sources})


def rules_report(cards: Iterable[RuleCard], changes: Iterable[TorchChange]) -> str:
    """The rules, one object each, and the changes of torch with the codes that tell them."""
    rules = [
        {
            "code": card.code,
            "name": card.name,
            "summary": card.summary,
            "applicability": card.applicability,
            "deprecated": card.deprecated,
            "removed": card.removed,
            "floor": card.floor,
            "url": card.url,
        }
        for card in cards
    ]
    told = [
        {"entry": one.entry, "title": one.title, "codes": list(one.codes), "not_reported": one.beyond}
        for one in changes
    ]
    return _dump({"schema_version": SCHEMA_VERSION, "tool_version": __version__, "rules": rules, "changes": told})


def _document(plan: Plan) -> dict[str, Any]:
    ranges = {project.root: str(project.torch) for project in plan.projects}
    used = set(ranges.values()) or {plan.torch}
    known = {
        "known": sum(known.findings for known in plan.known),
        "no_longer_there": [entry for known in plan.known for entry in known.gone],
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "torch": used.pop() if len(used) == 1 else None,
        "torch_ranges": ranges,
        "notes": [project.note for project in plan.projects if project.note is not None],
        "floors": [_floor(floor) for floor in plan.floors],
        "warnings": list(plan.warnings),
        "findings": [finding(one) for one in plan.findings],
        "errors": [{"path": failure.path, "message": failure.message} for failure in plan.failures],
        "files_checked": plan.files_checked,
        "suppressed": plan.suppressed,
        **(known if plan.known else {}),
        **({} if plan.traced is None else {"trace": plan.traced._asdict()}),
    }


def _floor(floor: FloorSummary) -> dict[str, Any]:
    return {
        "path": floor.stated.file,
        "line": floor.stated.line,
        "states": floor.stated.text,
        "findings": floor.findings,
        "settled": [{"torch": f">={least}", "findings": count} for least, count in floor.settled],
        "message": str(floor),
    }


def finding(found: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "code": found.code,
        "name": found.name,
        "path": found.path,
        "cell": found.cell,
        "line": found.line,
        "column": found.column,
        "end_line": found.end_line,
        "end_column": found.end_column,
        "message": found.message,
        "severity": found.severity.value,
        "applicability": found.applicability.value,
        "reason": found.reason,
        "settled": found.settled,
        "url": found.url,
        **_seen(found),
    }


def _seen(found: Finding) -> dict[str, Any]:
    """What a trace says of a finding, if there is one."""
    return {} if found.ran is None and not found.by_run else {"ran": found.ran, "by_run": found.by_run}


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2)
