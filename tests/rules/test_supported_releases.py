"""A card's floor is the oldest torch for which its fixes are offered; without one they are offered for every torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from packaging.version import Version

from fsdp_migrate.findings import Applicability, Finding, Severity
from fsdp_migrate.rules import RULES
from fsdp_migrate.rules.card import Example, RuleCard
from fsdp_migrate.targets.modernise.moved.moves import MOVES
from fsdp_migrate.torch_api import DEFAULT_RANGE, RELEASES
from tests.rules.checks import check_transformed, lint

# Whether there is anything to fix depends on the range itself.
DEAD_GATE = "FSDP690"
# Below the release of the new name these keep both worlds in a `try/except`, and read otherwise there.
GUARDED = tuple(move.code for move in MOVES)
# So do these for a name that an import brings, and what they write for newer ranges is another form.
KEEPING_BOTH = ("FSDP401",)
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
        assert all(re.search("fallback='|=None, nonwrapped", str(finding.fix)) for finding in findings)
        return
    needs = f"the replacement needs torch>={card.floor}, but torch>={older} is supported"
    for finding in findings:
        assert (finding.reason or "").partition("; `rewrite ")[0] == needs
        if "--torch" in (finding.reason or ""):
            _keeps_its_word(example.before, finding)
        else:
            (same,) = lint(example.before, card.code, torch=f">={card.floor}")
            assert same.applicability is Applicability.MANUAL


def _keeps_its_word(text: str, finding: Finding) -> None:
    """With the flags that a finding names, it has a fix that `rewrite` applies."""
    told = r".*; `rewrite --torch '(.*?)'( --unsafe-fixes)?( --hints)?` fixes it if older releases need no support"
    flags = re.fullmatch(told, finding.reason or "")
    assert flags, finding.reason
    (same,) = (one for one in lint(text, finding.code, torch=flags[1]) if one.place == finding.place)
    assert same.applicability is (Applicability.UNSAFE if flags[2] else Applicability.SAFE)
    assert (same.severity is Severity.HINT) is (flags[3] is not None)


CALL = "FSDP.sharded_optim_state_dict(model, optim)"
IMPORT = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"


@pytest.mark.parametrize(
    ("torch", "flags"),
    [
        (">=1.13", "--torch '>=2.1' --unsafe-fixes"),
        (">1.12, <2.6", "--torch '>=2.1,<2.6' --unsafe-fixes"),
        (">=2.0,!=2.2.1", "--torch '>=2.1,!=2.2.1' --unsafe-fixes"),
    ],
)
def test_the_flag_keeps_what_else_the_range_says(torch: str, flags: str) -> None:
    (finding,) = lint(f"{IMPORT}x = {CALL}\n", "FSDP102", torch)
    assert (finding.reason or "").endswith(f"; `rewrite {flags}` fixes it if older releases need no support")
    _keeps_its_word(f"{IMPORT}x = {CALL}\n", finding)


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        pytest.param(f"{IMPORT}x = {CALL}\n", ">=1.13,<2.1", id="no release of the range is new enough"),
        pytest.param(
            f"{IMPORT}if torch.__version__ < '2.1':\n    x = {CALL}\n", ">=1.13", id="only older ones get there"
        ),
        pytest.param(f"{IMPORT}x = FSDP.sharded_optim_state_dict(*args)\n", ">=1.13", id="it has no fix there either"),
    ],
)
def test_no_flag_is_named_that_would_not_help(text: str, torch: str) -> None:
    (finding,) = lint(text, "FSDP102", torch)
    assert finding.applicability is Applicability.MANUAL
    assert "--torch" not in (finding.reason or "")
