"""Every bundled fixture is rewritten exactly as it says; `tests/verify` runs the pairs."""

from __future__ import annotations

import ast

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules import RULES, find
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.verify import Fixture, find_fixtures
from fsdp_migrate.verify.verdicts import PLACEMENT
from fsdp_migrate.workspace.settings import Settings

FIXTURES = find_fixtures()
TORCH = TorchRange.parse(">=2.1")
# What FSDP202 fixes shows on torch 2.1 alone, FSDP003 is about libraries that are not at hand, and what the others take
# away never runs: their cards hold the pairs. FSDP900 is about whole programs, which tests/targets/fsdp2 has.
WITHOUT_FIXTURES = {"FSDP002", "FSDP003", "FSDP202", "FSDP690", "FSDP900"}
# What their fixes change is no program, or needs a framework: the tests of targets and frameworks have the pairs.
WITHOUT_FIXTURES |= {"FSDP822", "FSDP851", "FSDP852", "FSDP853"}


def _settings(fixture: Fixture, *, hints: bool = False, unsafe_fixes: bool = False) -> Settings:
    """The settings for the default range, or what the fixture needs beyond it."""
    needed = [str(need).removeprefix("torch") for need in fixture.header.needs if need.fact == "torch"]
    torch = TorchRange.parse(",".join(needed)) if needed else TORCH
    return Settings(torch, hints=hints, unsafe_fixes=unsafe_fixes, target=fixture.header.target)


each = pytest.mark.parametrize("fixture", FIXTURES, ids=[fixture.name for fixture in FIXTURES])


@each
def test_rewriting_before_gives_after_byte_for_byte(fixture: Fixture) -> None:
    before = fixture.before.read_bytes()
    after = before if fixture.after is None else fixture.after.read_bytes()
    hints = all(card is not None and card.severity is Severity.HINT for card in map(find, fixture.header.rules))
    settings = _settings(fixture, hints=hints, unsafe_fixes=fixture.header.unsafe)
    result = rewrite_bytes(before, "before.py", settings)
    assert result.error is None
    assert result.raw.decode() == after.decode()
    ast.parse(after)
    assert rewrite_bytes(after, "after.py", settings).raw == after


@each
def test_what_a_default_rewrite_leaves_is_what_the_header_declares(fixture: Fixture) -> None:
    result = rewrite_bytes(fixture.before.read_bytes(), "before.py", _settings(fixture))
    assert {f.code for f in result.left if f.severity is not Severity.HINT} == set(fixture.header.left)


@each
def test_lint_foretells_what_rewrite_does(fixture: Fixture) -> None:
    raw = fixture.before.read_bytes()
    report = lint_bytes(raw, "before.py", _settings(fixture))
    found = [f for f in report.findings if f.severity is not Severity.HINT]
    safe = [(f.code, f.line) for f in found if f.applicability is Applicability.SAFE]
    result = rewrite_bytes(raw, "before.py", _settings(fixture))
    assert sorted((f.code, f.line) for f in result.fixed if f.severity is not Severity.HINT) == sorted(safe)
    left = [f for f in result.left if f.severity is not Severity.HINT]
    assert len(left) == len(found) - len(safe)


@each
def test_a_fixture_shows_the_rule_it_names(fixture: Fixture) -> None:
    found = lint_bytes(fixture.before.read_bytes(), "before.py", _settings(fixture, hints=True)).findings
    assert set(fixture.header.rules) <= {f.code for f in found}


def test_every_rule_with_a_fix_has_several_fixtures() -> None:
    for rule in RULES:
        if rule.card.applicability != "manual" and rule.card.code not in WITHOUT_FIXTURES:
            cases = [fixture for fixture in FIXTURES if rule.card.code in fixture.header.rules]
            assert len(cases) >= 2, rule.card.code


@each
def test_only_an_unsafe_fix_may_differ(fixture: Fixture) -> None:
    seen = [differs for differs in fixture.header.differs if differs.name != PLACEMENT]
    assert fixture.header.unsafe or not seen
