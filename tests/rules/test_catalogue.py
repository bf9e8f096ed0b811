from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.catalogue import CHANGES
from fsdp_migrate.targets.modernise.moved.moves import MOVES
from tests.rules.catalogue_programs import PROGRAMS
from tests.rules.checks import lint

FAMILIES = ("FSDP4", "FSDP5", "FSDP6", "FSDP7", "FSDP8")
# They are about version checks and attempts to import, whatever these are for, and about what no release did otherwise.
OF_NO_CHANGE = {"FSDP690", "FSDP691", "FSDP710", "FSDP712", "FSDP713", "FSDP714", "FSDP717", "FSDP719", "FSDP720"}
# They are about releases of frameworks.
OF_FRAMEWORKS = {"FSDP851", "FSDP852", "FSDP853", "FSDP854", "FSDP855", "FSDP856", "FSDP859"}
CLAIMS = [(change.entry, code) for change in CHANGES for code in change.codes]


def test_every_change_has_a_code_or_says_why_not() -> None:
    entries = [change.entry for change in CHANGES]
    assert len(set(entries)) == len(entries)
    assert [change.entry for change in CHANGES if not change.codes and not change.beyond] == []
    assert all(change.title for change in CHANGES)


def test_every_code_is_a_rule_and_every_rule_of_the_families_tells_a_change() -> None:
    codes = {rule.card.code for rule in RULES}
    told = {code for _, code in CLAIMS}
    assert told - codes == set()
    assert {code for code in codes if code.startswith(FAMILIES)} - told == OF_NO_CHANGE | OF_FRAMEWORKS


def test_every_claim_has_a_program_and_every_program_a_claim() -> None:
    assert sorted(PROGRAMS) == sorted(CLAIMS)


@pytest.mark.parametrize(("entry", "code"), CLAIMS)
def test_the_code_finds_a_program_with_the_change(entry: str, code: str) -> None:
    torch, program = PROGRAMS[entry, code]
    assert code in {finding.code for finding in lint(program, "FSDP", torch)}


def test_every_moved_name_is_told_by_a_code_that_its_change_lists() -> None:
    codes = {change.entry: change.codes for change in CHANGES}
    known = [move for move in MOVES if move.entry in codes]
    assert [move.old for move in known if move.code not in codes[move.entry]] == []
    assert {move.entry for move in MOVES} - set(codes) <= {
        "sd-1x-private-methods",
        "flat-import",
        "flat-fsdp-flattened-attr",
    }


def test_the_list_of_rules_as_json_has_the_changes() -> None:
    document = json.loads(CliRunner().invoke(cli, ["rules", "--output-format", "json"]).output)
    assert [change["entry"] for change in document["changes"]] == [change.entry for change in CHANGES]
    assert all(change["codes"] or change["not_reported"] for change in document["changes"])
