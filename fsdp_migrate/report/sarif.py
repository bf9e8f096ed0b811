"""The report as SARIF 2.1.0, for code scanning and editors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes

from fsdp_migrate._version import __version__
from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.fingerprints import numbered
from fsdp_migrate.report import Plan, plain
from fsdp_migrate.report.places import below
from fsdp_migrate.report.regions import Region, Regions
from fsdp_migrate.torch_api import TorchRange

if TYPE_CHECKING:
    from fsdp_migrate.report.floor_summary import FloorSummary
    from fsdp_migrate.rules.card import RuleCard
    from fsdp_migrate.transactions import NewText

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
FINGERPRINT = "findingContent/v1"
LEVELS = {
    Severity.BREAKS: "error",
    Severity.CHANGES: "warning",
    Severity.DEPRECATED: "warning",
    Severity.HINT: "note",
}

# What is said of a project as a whole: no rule of a file, so that it has no code.
FLOOR = {
    "id": "stated-torch-floor",
    "name": "stated-torch-floor",
    "shortDescription": {"text": "a project states a lower bound of torch that is too low for its code"},
    "defaultConfiguration": {"level": "note"},
}

Object = dict[str, Any]


def report(plan: Plan) -> str:
    """The whole log, with the fixes of the findings."""
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [_Log(plan).object()]}, indent=2)


class _Log:
    """The log of one plan, with the numbers of its rules and files, to which results refer."""

    def __init__(self, plan: Plan) -> None:
        from fsdp_migrate.rules import find

        self.plan = plan
        codes = sorted({finding.code for finding in plan.findings})
        self.cards = [card for code in codes if (card := find(code)) is not None]
        self.rules = {card.code: number for number, card in enumerate(self.cards)}
        # Of one file after the other: most are asked for by every finding in them.
        self.source = lru_cache(plan.source)
        self.regions = lru_cache(partial(Regions, plan))
        self.files: dict[str, int] = {}
        for finding in plan.findings:
            self.files.setdefault(finding.path, len(self.files))

    def object(self) -> Object:
        torch = TorchRange.parse(self.plan.torch)
        encodings: dict[str, str] = {}
        results = list(self.results(encodings))
        return {
            "tool": {
                "driver": {
                    "name": "fsdp-migrate",
                    "version": __version__,
                    "semanticVersion": __version__,
                    "rules": [
                        *(rule(card, card.severity_on(torch)) for card in self.cards),
                        *([FLOOR] if self.plan.floors else []),
                    ],
                }
            },
            "invocations": [self.invocation()],
            "originalUriBaseIds": {ROOT: {"uri": _folder_uri(os.getcwd())}},
            "artifacts": [
                {
                    "location": self.location(path),
                    "roles": ["analysisTarget"],
                    "sourceLanguage": "python",
                    **({"encoding": encodings[path]} if path in encodings else {}),
                }
                for path in self.files
            ],
            "columnKind": "unicodeCodePoints",
            "newlineSequences": ["\r\n", "\n", "\r"],
            "results": results + [self.floor(floor) for floor in self.plan.floors],
        }

    def results(self, encodings: dict[str, str]) -> Iterator[Object]:
        """The findings in order. The encoding of each file is noted on the way."""
        for path, members in groupby(self.plan.findings, lambda finding: finding.path):
            self.source.cache_clear()
            self.regions.cache_clear()
            source, regions = self.source(path), self.regions(path)
            if source is not None:
                encodings[path] = source.encoding
            for finding, key, occurrence in numbered(members, source):
                result = self.result(finding, regions.of(finding))
                result["partialFingerprints"] = {FINGERPRINT: f"{key}:{occurrence}"}
                if source is not None and (fix := self.fix(finding)):
                    result["fixes"] = [fix]
                yield result

    def result(self, finding: Finding, region: Region) -> Object:
        numbered = {"ruleIndex": self.rules[finding.code]} if finding.code in self.rules else {}
        place = {
            "artifactLocation": self.location(finding.path) | {"index": self.files[finding.path]},
            "region": _region(region),
        }
        return {
            "ruleId": finding.code,
            **numbered,
            "level": LEVELS[finding.severity],
            "message": _message(f"{finding.message} [{plain.remedy(finding)}]"),
            "locations": [{"physicalLocation": place}],
            "properties": {"severity": finding.severity.value, "applicability": finding.applicability.value},
        }

    def floor(self, floor: FloorSummary) -> Object:
        """The result about a project's lower bound of torch, at the place that states it."""
        place: Object = {"artifactLocation": _location(floor.stated.file)}
        if floor.stated.line is not None:
            place["region"] = {"startLine": floor.stated.line}
        return {
            "ruleId": FLOOR["id"],
            "ruleIndex": len(self.cards),
            "level": "note",
            "message": _message(str(floor)),
            "locations": [{"physicalLocation": place}],
        }

    def fix(self, finding: Finding) -> Object | None:
        """What `rewrite` would change if this were the only finding."""
        texts = self.plan.texts_of(finding, self.source)
        if texts is None:
            return None
        unsafe = finding.applicability is Applicability.UNSAFE
        text = f"Unsafe: {finding.reason}" if unsafe else "Safe: the code does the same afterwards"
        return {"description": _message(text), "artifactChanges": [self.change(*item) for item in texts.items()]}

    def change(self, path: str, new: NewText) -> Object:
        """The replacements in one file."""
        source = self.source(path)
        assert source is not None
        replacements = [
            {"deletedRegion": _region(region), "insertedContent": {"text": text}}
            for region, text in self.regions(path).changes(source, new.raw, new.replacements)
        ]
        return {"artifactLocation": self.location(path), "replacements": replacements}

    def invocation(self) -> Object:
        failures = [self.notification(failure.message, "error", failure.path) for failure in self.plan.failures]
        projects = self.plan.projects
        warnings = [self.notification(text, "warning") for text in self.plan.warnings]
        notes = [self.notification(project.note, "note") for project in projects if project.note is not None]
        return {
            "executionSuccessful": not self.plan.failed,
            "workingDirectory": {"uri": _folder_uri(os.getcwd())},
            "toolExecutionNotifications": failures,
            "toolConfigurationNotifications": [*warnings, *notes],
        }

    def notification(self, text: str, level: str, path: str | None = None) -> Object:
        where = {} if path is None else {"locations": [{"physicalLocation": {"artifactLocation": self.location(path)}}]}
        return {"message": _message(text), "level": level, **where}

    def location(self, path: str) -> Object:
        return _location(self.plan.real_paths.get(path, path))


def rule(card: RuleCard, severity: Severity) -> Object:
    """A card as a rule of SARIF, for a torch range on which it has this severity."""
    from fsdp_migrate.report.cards import card_markdown, card_text

    described: Object = {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": card.summary},
        # Code scanning takes at most 1,024 characters here; the whole text is the help.
        "fullDescription": {"text": card.explanation.strip().split("\n\n")[0]},
        "help": {"text": card_text(card, severity), "markdown": "\n\n".join(card_markdown(card, severity))},
        "defaultConfiguration": {"level": LEVELS[severity]},
        "properties": {"tags": ["pytorch", "fsdp"], "problem.severity": _problem(severity)},
    }
    return described | ({"helpUri": card.url} if card.url else {})


def _problem(severity: Severity) -> str:
    """GitHub's grade of a rule that is not about security."""
    return {"error": "error", "warning": "warning", "note": "recommendation"}[LEVELS[severity]]


def _region(region: Region) -> Object:
    return {
        "startLine": region.line,
        "startColumn": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
    }


def _message(text: str) -> Object:
    """Text that a viewer shows as it is, without placeholders or links that the code under analysis could make."""
    return {"text": text.replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _location(path: str) -> Object:
    """The place of a file: a relative URI below the working directory, an absolute one elsewhere."""
    inside = below(path, os.getcwd())
    if inside is None:
        return {"uri": "file://" + _encoded("/" + Path(os.path.abspath(path)).as_posix().lstrip("/"))}
    return {"uri": _encoded(inside), "uriBaseId": ROOT}


def _folder_uri(folder: str) -> str:
    return "file://" + _encoded("/" + Path(folder).as_posix().strip("/")).rstrip("/") + "/"


def _encoded(path: str) -> str:
    """A path as part of a URI, encoded byte by byte, so that names in unknown encodings stay exact."""
    return quote_from_bytes(path.encode("utf-8", "surrogateescape"), safe="/")
