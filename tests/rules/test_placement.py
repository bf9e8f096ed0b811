"""Where a call is put under a `with`, and why it is not."""

from __future__ import annotations

import pytest

from fsdp_migrate.planning.rewriting import rewrite_source
from tests.rules.checks import check_manual

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
CALL = "FSDP.full_optim_state_dict(model, {})"


def save(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{FSDP}\n\nasync def save(self, model, optim, d, a):\n{lines}"


@pytest.mark.parametrize("earlier", ["self.x", "d['k']", "h()", "len(a)", "await a", "await h()", "d.k + 1"])
def test_an_argument_with_an_effect_is_not_moved_in_front_of_what_it_may_change(earlier: str) -> None:
    body = f"x = [{earlier}, {CALL.format('make()')}]"
    check_manual(save(body), "FSDP101", "is evaluated before `make()` in the same statement")


@pytest.mark.parametrize("earlier", ["(yield)", "(yield from a)"])
def test_nor_in_front_of_what_gives_control_away(earlier: str) -> None:
    text = save(f"x = [{earlier}, {CALL.format('make()')}]").replace("async def", "def")
    check_manual(text, "FSDP101", "is evaluated before `make()` in the same statement")


@pytest.mark.parametrize("earlier", ["a", "a + 1", "'text'", "(a, optim)"])
def test_what_cannot_have_changed_does_not_matter(earlier: str) -> None:
    new = rewrite_source(save(f"x = [{earlier}, {CALL.format('make()')}]")).source
    assert "FSDP.optim_state_dict(model, optimizer)" in new
    assert new.index("optimizer = make()") < new.index("with FSDP.state_dict_type(")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"x = lambda: {CALL}", "inside a lambda: write it as a function"),
        (f"x = [{CALL} for a in d]", "inside a comprehension: write it as a loop"),
        (f"x = {CALL} if a else None", "inside a conditional expression: write it as an `if` statement"),
        (
            f"while {CALL}:\n    pass",
            "for every turn: leave `while True` by a `break` in its body",
        ),
        (f"if a:\n    pass\nelif {CALL}:\n    pass", "in an `elif` condition"),
        (f"class A:\n    x = {CALL}", "in a class body"),
        (f"with a() as b, f({CALL}):\n    pass", "is entered before the call in the same `with`"),
        (f"x = [d.pop(), step(), {CALL}]", "runs before the call in the same statement"),
        (f"x = [(a := 1), {CALL}]", "is bound with `:=` before the call"),
        (f"x = f'{{{CALL}=}}'", "prints its own text"),
    ],
)
def test_a_call_that_has_no_place_for_a_block_is_manual(body: str, reason: str) -> None:
    check_manual(save(body.replace("{}", "optim")), "FSDP101", reason)
