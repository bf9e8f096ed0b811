"""A safe rewrite does the same: performed on a stage, where what is asked of FSDP shows, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_migrate import rewrite_source
from tests.fuzz import plays
from tests.fuzz.stage import Situation, perform

situations = st.builds(Situation, st.integers(0, 1), st.booleans(), st.booleans(), st.integers(0, 4))


@given(plays.programs(), situations)
def test_what_is_rewritten_safely_does_the_same_in_every_situation(program: str, situation: Situation) -> None:
    after = rewrite_source(program, torch=">=2.1").source
    if after != program:
        assert perform(after, situation) == perform(program, situation), after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = FSDP.full_optim_state_dict(m, o)", "x = FSDP.optim_state_dict(m, o)"),
        (
            "x = [effect(1), FSDP.full_optim_state_dict(m, o)]; o.step()",
            "o.step(); x = [effect(1), FSDP.full_optim_state_dict(m, o)]",
        ),
        (
            "self.o.load_state_dict(FSDP.scatter_full_optim_state_dict(osd, m))",
            "self.o.load_state_dict(FSDP.optim_state_dict_to_load(m, o, osd))",
        ),
    ],
)
def test_the_stage_shows_a_lost_config_another_order_and_the_wrong_optimizer(before: str, after: str) -> None:
    texts = (f"{plays.HEAD}        {line}\n        return x\n" for line in (before, after))
    one, other = (perform(text, Situation(rank=0, flag=True, types_set=False, failing=0)) for text in texts)
    assert one != other
