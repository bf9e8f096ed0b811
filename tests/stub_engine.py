"""A linter and rewriter that find words instead of FSDP code, so that what surrounds the engine is tested alone.

SAFE, UNSAFE, MANUAL and HINT are findings of that kind; rewriting turns SAFE, and UNSAFE with unsafe fixes, into DONE.
So is BROKEN_API, which breaks on the supported torch. `# noqa` suppresses those of its line. BROKEN does not parse,
UNDECODABLE cannot be read, CRASH is the engine's fault.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from fsdp_migrate.findings import Applicability, FileReport, Finding, Severity
from fsdp_migrate.planning.parts import RewriteResult
from fsdp_migrate.screen import Look
from fsdp_migrate.source import Source, Span
from fsdp_migrate.workspace.settings import Settings

KINDS = {
    b"SAFE": ("FSDP101", "full-optim-state-dict", Severity.DEPRECATED, Applicability.SAFE, None),
    b"UNSAFE": ("FSDP201", "missing-config", Severity.CHANGES, Applicability.UNSAFE, "other ranks get {}"),
    b"MANUAL": (
        "FSDP104",
        "scatter",
        Severity.DEPRECATED,
        Applicability.MANUAL,
        "no optimizer in `load`",
    ),
    b"HINT": ("FSDP210", "state-dict-type", Severity.HINT, Applicability.MANUAL, None),
    b"BROKEN_API": ("FSDP303", "moved-flat-parameter", Severity.BREAKS, Applicability.MANUAL, "it is gone"),
    b"BROKEN": ("FSDP001", "unparsable-file", Severity.BREAKS, Applicability.MANUAL, "fix the syntax error"),
}


def lint_bytes(
    raw: bytes, path: str, settings: Settings, project: object = None, *, chosen: bool = False, seen: object = None
) -> FileReport:
    if b"CRASH" in raw:
        raise KeyError("no such\nscope")
    if b"UNDECODABLE" in raw:
        return FileReport(path, error="not valid utf-8")
    source = Source(raw)
    findings, suppressed = [], 0
    for word in re.finditer(rb"\b(SAFE|UNSAFE|MANUAL|HINT|BROKEN|BROKEN_API)\b(?=([^\n]*))", source.data):
        finding = _finding(source, path, word)
        if b"# noqa" in word[2]:
            suppressed += 1
        elif settings.selected(finding.code):
            findings.append(finding)
    return FileReport(path, tuple(findings), suppressed)


def look_at(raw: bytes, path: str, settings: Settings, imports: bytes | None = None) -> Look:
    return Look(passes=True, waits=False, near=False)


def rewrite_bytes(
    raw: bytes,
    path: str,
    settings: Settings,
    project: object = None,
    *_: object,
    chosen: bool = False,
    seen: object = None,
) -> RewriteResult:
    before = lint_bytes(raw, path, settings)
    if before.failed:
        return RewriteResult(raw, left=before.findings, error=before.error)
    wanted = {Applicability.SAFE, *([Applicability.UNSAFE] if settings.unsafe_fixes else [])}
    fixed = tuple(finding for finding in before.findings if finding.applicability in wanted)
    source = Source(raw)
    data = source.data
    for finding in reversed(fixed):
        data = data[: finding.span.start] + b"DONE" + data[finding.span.end :]
    new = source.encode(data)
    after = lint_bytes(new, path, settings)
    return RewriteResult(new, fixed, after.findings, after.suppressed)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stub in the engine's place for this process."""
    for name, functions in (("lint", (lint_bytes, look_at)), ("planning.rewriting", (rewrite_bytes,))):
        module = ModuleType(f"fsdp_migrate.{name}")
        for function in functions:
            setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def _finding(source: Source, path: str, word: re.Match[bytes]) -> Finding:
    code, name, severity, applicability, reason = KINDS[word[1]]
    start, end = source.position(word.start(1)), source.position(word.end(1))
    span = Span(word.start(1), word.end(1))
    return Finding(
        code=code,
        name=name,
        message=f"`{word[1].decode()}` is old",
        severity=severity,
        applicability=applicability,
        reason=reason,
        path=path,
        span=span,
        statement=span,
        line=start.line,
        column=start.column,
        end_line=end.line,
        end_column=end.column,
        url="https://example.org/safe" if code == "FSDP101" else None,
    )
