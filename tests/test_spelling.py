from __future__ import annotations

import pytest

from fsdp_migrate.spelling import closest, closest_rule

RULES = {"FSDP101": "full-optim-state-dict", "FSDP104": "scatter-full-optim-state-dict", "FSDP301": "isinstance-flat"}


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("FSDP10x", "FSDP101"),
        ("fsdp3O1", "FSDP301"),
        ("FSDP-l04", "FSDP104"),
        ("FSDP1041", "FSDP104"),
        ("FSDP9", None),
        ("FSDPX", None),
        ("FSDP199", None),
        ("FSDP999", None),
        ("scatter-full-optim-state", "scatter-full-optim-state-dict"),
    ],
)
def test_a_code_is_near_one_that_begins_with_the_same_digits(word: str, near: str | None) -> None:
    assert closest_rule(word, RULES) == ("" if near is None else f" (did you mean {near}?)")


def test_closest_ignores_case() -> None:
    assert closest("Isinstance-Flat", RULES.values()) == " (did you mean isinstance-flat?)"
    assert closest("zzz", RULES.values()) == ""
