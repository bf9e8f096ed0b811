"""How rule tests state what a rule does to a program."""

from __future__ import annotations

import ast
from textwrap import dedent

from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings


def lint(text: str, select: str, torch: str = ">=2.1") -> tuple[Finding, ...]:
    """The findings of the rules `select` in a (dedented) program."""
    settings = Settings(torch=TorchRange.parse(torch), select=(select,), hints=True)
    return lint_bytes(dedent(text).encode(), "example.py", settings).findings


def check_transformed(before: str, after: str, select: str, *, unsafe: bool = False, torch: str = ">=2.1") -> None:
    """Rewriting `before` gives `after`, lint foretells it, and a second run changes nothing."""
    before, after = dedent(before), dedent(after)
    ast.parse(after)
    grade = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    assert {finding.applicability for finding in lint(before, select, torch)} & grade
    settings = Settings(torch=TorchRange.parse(torch), select=(select,), hints=True, unsafe_fixes=unsafe)
    result = rewrite_bytes(before.encode(), "example.py", settings)
    assert result.error is None
    assert result.raw.decode() == after
    assert rewrite_bytes(result.raw, "example.py", settings).raw == result.raw


def check_noop(text: str, select: str, torch: str = ">=2.1") -> None:
    """Nothing is found and nothing changes."""
    assert lint(text, select, torch) == ()


def check_manual(text: str, select: str, reason: str, torch: str = ">=2.1") -> None:
    """Everything found is manual for a reason that says `reason`, and nothing changes."""
    findings = lint(text, select, torch)
    assert findings
    assert {finding.applicability for finding in findings} == {Applicability.MANUAL}
    assert all(reason in (finding.reason or "") for finding in findings), [finding.reason for finding in findings]
    settings = Settings(torch=TorchRange.parse(torch), select=(select,), unsafe_fixes=True)
    raw = dedent(text).encode()
    assert rewrite_bytes(raw, "example.py", settings).raw == raw
