"""A card's floor is the oldest torch for which its fixes are offered; without one they are offered for every torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.torch_api import DEFAULT_RANGE, RELEASES
from tests.rules.checks import check_transformed, lint

# Whether there is anything to fix depends on the range itself.
DEAD_GATE = "FSDP690"
# Below the release of the new name these keep both worlds in a `try/except`, and read otherwise there.
GUARDED = ("FSDP601", "FSDP602", "FSDP603", "FSDP604", "FSDP605")
# So do these for a name that an import brings, and what they write for newer ranges is another form.
KEEPING_BOTH = ("FSDP401", "FSDP402", "FSDP802", "FSDP803", "FSDP811", "FSDP813", "FSDP833")
# The companions of FlatParameter, which FSDP303 moves too, are a release younger than it.
COMPANIONS_SINCE = "1.13"


def _fixed(below_floor: bool) -> Iterator[object]:
    for card in (rule.card for rule in RULES):
        for number, example in enumerate(card.flags):
            if not below_floor and "except ImportError" in (example.after or ""):
                continue  # from the floor on nothing needs to be kept
            everywhere = not below_floor and card.code not in (DEAD_GATE, *GUARDED)
            floor_matters = card.floor is not None or everywhere
            if example.after is not None and floor_matters and example.torch == DEFAULT_RANGE:
                yield pytest.param(card, example, id=f"{card.name}-{number}")


@pytest.mark.parametrize(("card", "example"), list(_fixed(below_floor=False)))
def test_from_the_floor_on_the_fix_is_the_same(card: RuleCard, example: Example) -> None:
    assert example.after is not None
    unsafe = example.applicability is Applicability.UNSAFE
    torch = f">={COMPANIONS_SINCE if card.code == 'FSDP303' else card.floor or RELEASES[0]}"
    check_transformed(example.before, example.after, card.code, unsafe=unsafe, torch=torch)


@pytest.mark.parametrize(("card", "example"), list(_fixed(below_floor=True)))
def test_below_the_floor_there_is_none_but_what_keeps_both(card: RuleCard, example: Example) -> None:
    assert card.floor is not None
    older = [release for release in RELEASES if release < Version(card.floor)][-1]
    findings = lint(example.before, card.code, torch=f">={older}")
    if card.code in KEEPING_BOTH and all(finding.fix is not None for finding in findings):
        assert all(re.search("except ImportError|=None, nonwrapped", str(finding.fix)) for finding in findings)
        return
    assert {finding.reason for finding in findings} == {
        f"the replacement needs torch>={card.floor}, and torch>={older} is supported"
    }
