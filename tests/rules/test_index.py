from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.lint.module_check import may_fix
from fsdp_migrate.rules import RULES, find
from fsdp_migrate.rules.card import Rule
from fsdp_migrate.rules.entry import Entry
from fsdp_migrate.rules.index import ENTRIES
from fsdp_migrate.screen import Screen
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings
from tools.build_rule_index import COMMAND, TARGET, found, found_of_targets, index_text


def test_the_index_says_what_the_rules_say() -> None:
    assert TARGET.read_text(encoding="utf-8") == index_text(found(), found_of_targets()), f"run `{COMMAND}`"


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.code for entry in ENTRIES])
def test_an_entry_loads_the_rule_with_its_code(entry: Entry) -> None:
    rule = entry.load()
    assert rule in RULES
    assert rule.card.code == entry.code


def test_an_entry_of_a_module_without_the_rule_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"rules\.unparsable has no rule FSDP999"):
        Entry("FSDP999", "x", "rules.unparsable", ()).load()


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.code for entry in ENTRIES])
def test_what_a_card_flags_passes_the_screen_of_the_rule_alone(entry: Entry) -> None:
    for example in entry.load().card.flags:
        assert Screen((entry._replace(scope="everywhere" if entry.scope == "everywhere" else "fsdp"),)).passes(
            example.before.encode()
        )


def test_a_card_is_found_by_code_and_by_name() -> None:
    assert find("fsdp106") is find("optim-input") is next(r.card for r in RULES if r.card.code == "FSDP106")
    assert find("nonsense") is None


@pytest.mark.parametrize("rule", RULES, ids=[rule.card.code for rule in RULES])
def test_the_fixes_of_examples_have_a_grade_that_the_card_names(rule: Rule) -> None:
    entry = next(entry for entry in ENTRIES if entry.code == rule.card.code)
    for example in rule.card.flags:
        settings = Settings(TorchRange.parse(example.torch), select=(rule.card.code,))
        for finding in lint_bytes(example.before.encode(), "x.py", settings).findings:
            assert finding.fix is None or finding.applicability.value in entry.fixes


def test_a_rule_may_fix_what_its_card_or_the_settings_say() -> None:
    by_code = {entry.code: entry for entry in ENTRIES}
    assert [by_code[code].fixes for code in ("FSDP111", "FSDP202", "FSDP201")] == [(), ("safe",), ("unsafe",)]
    careful, bold = Settings(TorchRange.default()), Settings(TorchRange.default(), unsafe_fixes=True)
    assert [may_fix(by_code[code], careful) for code in ("FSDP111", "FSDP202", "FSDP201")] == [False, True, False]
    assert [may_fix(by_code[code], bold) for code in ("FSDP111", "FSDP202", "FSDP201")] == [False, True, True]
    graded = Settings(
        TorchRange.default(),
        grades=(("FSDP1", Applicability.SAFE), ("FSDP202", Applicability.UNSAFE), ("FSDP201", Applicability.SAFE)),
    )
    assert [may_fix(by_code[code], graded) for code in ("FSDP111", "FSDP202", "FSDP201")] == [False, False, True]
