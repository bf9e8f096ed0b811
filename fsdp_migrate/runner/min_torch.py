"""The answer of `lint --min-torch`: the lowest torch that has everything, and the places that decide it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from packaging.version import Version

from fsdp_migrate import runner
from fsdp_migrate.findings import UNPARSABLE, Finding, Severity
from fsdp_migrate.records import NamedTuple
from fsdp_migrate.report import Plan, json_format, plain
from fsdp_migrate.torch_api import RELEASES, Statement, TorchRange
from fsdp_migrate.torch_api.words import minor
from fsdp_migrate.workspace.filesystem import Discovery, Failure, SourceFile
from fsdp_migrate.workspace.projects import Projects
from fsdp_migrate.workspace.settings.configuration import Configuration

SCHEMA_VERSION = 1
_MOST_PLACES = 20


class LowestTorch(NamedTuple):
    """The lowest torch for a project, the findings that decide it, and how many break on the newest torch anyway."""

    root: str
    floor: str
    deciding: tuple[Finding, ...]
    anyway: int
    stated: Statement | None


def answers(discovery: Discovery, configuration: Configuration) -> tuple[list[LowestTorch], tuple[Failure, ...]]:
    """The answers for the projects of the files, in order of their roots, and the files that could not be checked.

    Only releases in the given range count, by default all known ones.
    """
    torch = configuration.options.torch or TorchRange.parse(f">={minor(RELEASES[0])}")
    members: dict[str, list[SourceFile]] = {}
    projects = Projects(configuration.files)
    stated = {}
    for file in discovery.files:
        project = projects.of(file)
        members.setdefault(project.root, []).append(file)
        stated[project.root] = project.torch.stated
    found, failures = [], dict.fromkeys(discovery.failures)
    for root in sorted(members):
        floor, deciding, plan = _lowest(
            discovery._replace(files=tuple(members[root]), failures=()), configuration, torch
        )
        unparsable = (f for f in plan.findings if f.code == UNPARSABLE)
        failures.update(dict.fromkeys([*plan.failures, *(Failure(f.path, f.message) for f in unparsable)]))
        found.append(LowestTorch(root, floor, deciding, len(_breaking(plan)), stated[root]))
    return found, tuple(failures)


def _lowest(
    discovery: Discovery, configuration: Configuration, torch: TorchRange
) -> tuple[str, tuple[Finding, ...], Plan]:
    """The lowest torch, the findings that decide it, and the plan of a run on it."""
    floor, deciding = minor(torch.oldest), tuple[Finding, ...]()
    while True:
        plan = _checked(discovery, configuration, torch)
        needed = [finding for finding in _breaking(plan) if finding.settled is not None]
        if not needed:
            return floor, deciding, plan
        floor = max((str(finding.settled) for finding in needed), key=Version)
        deciding = tuple(finding for finding in needed if finding.settled == floor)
        torch = TorchRange.parse(f"{torch},>={floor}")


def _checked(discovery: Discovery, configuration: Configuration, torch: TorchRange) -> Plan:
    options = configuration.options._replace(torch=torch, baseline=None)
    return runner.lint(discovery, Configuration(options, configuration.files))


def _breaking(plan: Plan) -> list[Finding]:
    return [f for f in plan.findings if f.severity is Severity.BREAKS and f.code != UNPARSABLE]


def lines(found: Iterable[LowestTorch]) -> Iterator[str]:
    """The answer for people."""
    for one in found:
        stated = "" if one.stated is None else f"; {one.stated}"
        why = "is the lowest floor on which nothing is missing" if one.deciding else "misses nothing"
        yield f"{one.root}: torch>={one.floor} {why}{stated}"
        for finding in one.deciding[:_MOST_PLACES]:
            yield f"  {plain.shown_place(finding)}: {finding.code} {finding.message}"
        if len(one.deciding) > _MOST_PLACES:
            yield f"  and {len(one.deciding) - _MOST_PLACES} more places that need torch>={one.floor}"
        if one.anyway:
            yield f"  with any lower bound, {_broken(one.anyway)} on the newest torch: `fsdp-migrate lint` lists them"


def _broken(number: int) -> str:
    return "1 finding breaks" if number == 1 else f"{number} findings break"


def document(found: Sequence[LowestTorch], failures: Sequence[Failure]) -> str:
    """The answer for programs."""
    projects = [
        {
            "root": one.root,
            "min_torch": one.floor,
            "stated": None if one.stated is None else one.stated._asdict(),
            "decided_by": [json_format.finding(finding) for finding in one.deciding],
            "breaks_anyway": one.anyway,
        }
        for one in found
    ]
    errors = [failure._asdict() for failure in failures]
    return json.dumps({"schema_version": SCHEMA_VERSION, "projects": projects, "errors": errors}, indent=2)
