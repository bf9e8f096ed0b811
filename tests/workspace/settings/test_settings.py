from __future__ import annotations

import pytest

from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import ConfigError, Settings, selectors

TORCH = TorchRange.parse(">=2.1")

RULES = {"FSDP101": "full-optim-state-dict", "FSDP104": "scatter-full-optim-state-dict", "FSDP301": "isinstance-flat"}


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ((), (), True),
        (("FSDP1",), (), True),
        (("FSDP3",), (), False),
        ((), ("FSDP1",), False),
        (("FSDP101",), ("FSDP1",), True),
        (("FSDP1",), ("FSDP101",), False),
        (("FSDP1",), ("FSDP1",), False),
        (("FSDP",), ("FSDP10",), False),
    ],
)
def test_the_longest_prefix_decides_and_ignore_wins_a_tie(
    select: tuple[str, ...], ignore: tuple[str, ...], expected: bool
) -> None:
    assert Settings(TORCH, select, ignore).selected("FSDP101") is expected


def test_a_file_that_does_not_parse_is_reported_whatever_is_selected() -> None:
    assert Settings(TORCH, select=("FSDP3",), ignore=("FSDP0",)).selected("FSDP001")


def test_settings_can_be_a_key() -> None:
    assert len({Settings(TORCH), Settings(TorchRange.parse(">=2.1")), Settings(TORCH, hints=True)}) == 2


def test_selectors_are_split_at_commas_resolved_and_kept_once() -> None:
    written = ["fsdp1, isinstance-flat", "FSDP301,", "FSDP1"]
    assert selectors(written, RULES) == ("FSDP1", "FSDP301")


def test_a_selector_that_fits_no_rule_is_refused_with_a_proposal() -> None:
    with pytest.raises(ConfigError, match=r"^no rule is called 'FSDP3O1' \(did you mean FSDP301\?\); `fsdp-mig"):
        selectors(["FSDP1,FSDP3O1"], RULES)
    with pytest.raises(ConfigError, match=r"^no rule is called 'nonsense'; `fsdp-migrate rules` lists them$"):
        selectors(["nonsense"], RULES)
