"""FSDP001 and FSDP859: a file that does not parse, about which nothing else can be said."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.findings import UNPARSABLE, UNREAD, Applicability, Finding, Severity
from fsdp_migrate.rules.card import Rule, RuleCard
from fsdp_migrate.source import NoReaderError, Span, TooLargeError

_MEND = (
    "fix the syntax error, or run with the Python version that the file needs (this is "
    f"{sys.version_info.major}.{sys.version_info.minor})"
)

CARD = RuleCard(
    code=UNPARSABLE,
    name="unparsable-file",
    summary="a file with FSDP names that does not parse",
    explanation="""\
Python cannot parse this file, and it contains a name that some rule looks for. Nothing in it was checked. The other
files are checked, and the run ends with exit code 3. Fix the syntax error, or exclude the file.

A file with more than four million characters of code is reported in the same way, because its analysis would need more
than half a gigabyte of memory. Split or exclude it.

In a notebook each such cell is reported. The other cells are checked, but none is rewritten.""",
    applicability="manual",
    severity=Severity.BREAKS,
)


def unparsable(
    what: str, error: SyntaxError, lines: Sequence[str], path: str, cell: int | None = None, start: int = 0
) -> Finding:
    """The finding for `what` does not parse; its lines start at byte `start` of the text."""
    row = min(max(error.lineno or 1, 1), len(lines))
    line = lines[row - 1].rstrip("\r\n")
    column = min(max(error.offset or 1, 1), len(line) + 1)
    before = "".join([*lines[: row - 1], line[: column - 1]])
    offset = start + len(before.encode("utf-8", "surrogatepass"))
    large = isinstance(error, TooLargeError)
    state, way = ("is not parsed", "split or exclude it") if large else ("does not parse", _MEND)
    rest = (
        ("nothing else in the file was checked") if cell is None else "the other cells were checked, but not rewritten"
    )
    return Finding(
        code=CARD.code,
        name=CARD.name,
        message=f"{what} {state}: {error.msg}",
        severity=Severity.BREAKS,
        applicability=Applicability.MANUAL,
        reason=f"{way}; {rest}",
        path=path,
        span=Span(offset, offset),
        statement=Span(offset, offset),
        line=row,
        column=column,
        end_line=row,
        end_column=column,
        cell=cell,
    )


YAML_CARD = RuleCard(
    code=UNREAD,
    name="unread-yaml",
    summary="YAML that may configure FSDP and cannot be read",
    explanation="""\
The file has `fsdp_config`, `fsdp_version` or `parallelism_config` in it, and is no YAML: mostly it is a template, or
has tabs or broken anchors. It may also be longer than 200 kB, or the package `ruamel.yaml` may be missing, which
`pip install 'fsdp-migrate[yaml]'` brings. Nothing in it was checked. The run counts such files, and does not fail for
them.""",
    applicability="manual",
    severity=Severity.HINT,
)


def unread(error: SyntaxError, lines: Sequence[str], path: str) -> Finding:
    """The finding for YAML that cannot be read, for the reason that the error gives."""
    found = unparsable("the YAML", error, lines, path)
    missing = isinstance(error, NoReaderError)
    return found._replace(
        code=YAML_CARD.code,
        name=YAML_CARD.name,
        message=f"the YAML is not checked: {error.msg}",
        severity=Severity.HINT,
        reason="pip install 'fsdp-migrate[yaml]'" if missing else "it is no YAML that can be read: check it by hand",
    )


def _check(facts: ModuleFacts, card: RuleCard) -> Iterator[Finding]:
    return iter(())  # the finding is made where parsing fails


RULES = (Rule(CARD, (), _check, scope="everywhere"), Rule(YAML_CARD, (), _check))
