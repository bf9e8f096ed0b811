"""Every card's examples are true: what it flags, what rewriting makes of it, what it leaves alone."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.rules import RULES, find
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

ALL = TorchRange.parse(">=2.1")


@pytest.mark.parametrize(
    ("newest", "severity"),
    [
        ("2.3.1", Severity.HINT),
        ("2.4.0", Severity.DEPRECATED),
        ("2.5.1", Severity.DEPRECATED),
        ("2.6.0", Severity.BREAKS),
        ("2.7.0", Severity.BREAKS),
    ],
)
def test_the_first_releases_that_warn_and_fail_decide_on_the_severity(newest: str, severity: Severity) -> None:
    card = RuleCard("FSDP999", "a-rule", "a summary", "", "manual", deprecated="2.4", removed="2.6")
    assert card.severity_up_to(Version(newest)) is severity
    assert card._replace(severity=Severity.CHANGES).severity_up_to(Version(newest)) is Severity.CHANGES


def _settings(card: RuleCard, torch: TorchRange = ALL, unsafe: bool = False) -> Settings:
    return Settings(torch=torch, select=(card.code,), hints=True, unsafe_fixes=unsafe)


def _range(example: Example) -> TorchRange:
    return TorchRange.parse(example.torch)


def _flags() -> Iterator[object]:
    for rule in RULES:
        for number, example in enumerate(rule.card.flags):
            yield pytest.param(rule.card, example, id=f"{rule.card.name}-{number}")


def _leaves() -> Iterator[object]:
    for rule in RULES:
        for number, text in enumerate(rule.card.leaves):
            yield pytest.param(rule.card, text, id=f"{rule.card.name}-{number}")


@pytest.mark.parametrize(("card", "example"), list(_flags()))
def test_a_flagged_example_is_found_with_its_grade(card: RuleCard, example: Example) -> None:
    report = lint_bytes(example.before.encode(), "example.py", _settings(card, _range(example)))
    expected = Applicability.MANUAL if example.after is None else example.applicability
    assert [(f.code, f.applicability) for f in report.findings] == [(card.code, expected)]
    assert (report.findings[0].reason is None) == (expected is Applicability.SAFE)


@pytest.mark.parametrize(("card", "example"), list(_flags()))
def test_a_flagged_example_is_found_without_selecting_its_rule(card: RuleCard, example: Example) -> None:
    report = lint_bytes(example.before.encode(), "example.py", Settings(torch=_range(example), hints=True))
    assert card.code in {finding.code for finding in report.findings}


@pytest.mark.parametrize(("card", "example"), list(_flags()))
def test_a_flagged_example_is_rewritten_as_the_card_says(card: RuleCard, example: Example) -> None:
    result = rewrite_bytes(example.before.encode(), "example.py", _settings(card, _range(example), unsafe=True))
    assert result.error is None
    assert result.raw.decode() == (example.before if example.after is None else example.after)
    ast.parse(result.raw)
    again = rewrite_bytes(result.raw, "example.py", _settings(card, _range(example), unsafe=True))
    assert again.raw == result.raw


@pytest.mark.parametrize(("card", "example"), list(_flags()))
def test_an_unsafe_example_is_left_alone_by_default(card: RuleCard, example: Example) -> None:
    result = rewrite_bytes(example.before.encode(), "example.py", _settings(card, _range(example)))
    changed = example.after is not None and example.applicability is Applicability.SAFE
    assert (result.raw != example.before.encode()) == changed


@pytest.mark.parametrize(("card", "text"), list(_leaves()))
def test_what_a_card_leaves_alone_is_not_found(card: RuleCard, text: str) -> None:
    assert lint_bytes(text.encode(), "example.py", _settings(card)).findings == ()


def test_codes_and_names_are_unique_and_well_formed() -> None:
    codes = [rule.card.code for rule in RULES]
    names = [rule.card.name for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)
    assert codes == sorted(codes)
    assert all(name == name.lower() and "_" not in name for name in names)


def test_a_card_is_found_by_code_and_by_name() -> None:
    card = find("fsdp104")
    assert card is not None
    assert card.code == "FSDP104"
    assert find("scatter-full-optim-state-dict") is card
    assert find("FSDP999") is None


@pytest.mark.parametrize("card", [rule.card for rule in RULES], ids=lambda card: card.code)
def test_the_text_of_a_card_fits_one_screen(card: RuleCard) -> None:
    paragraphs = re.split(r"\n\n|\n(?=\* )", card.explanation)
    lines = [line for text in paragraphs for line in (*textwrap.wrap(text, 100), "")]
    assert len(lines) - 1 <= 24
