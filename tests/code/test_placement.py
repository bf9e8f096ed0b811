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


def first_lines(text: str) -> list[str]:
    """The lines of the function in front of the block."""
    new = rewrite_source(text).source
    return [line.strip() for line in new[new.index("def save") :].partition("    with ")[0].splitlines()[1:]]


@pytest.mark.parametrize("earlier", ["self.x", "d['k']", "h()", "len(a)", "await a", "await h()", "d.k + 1"])
def test_what_an_argument_with_an_effect_may_change_is_evaluated_first_too(earlier: str) -> None:
    name = "x" if earlier == "self.x" else "value"
    assert first_lines(save(f"y = [{earlier}, {CALL.format('make()')}]")) == [
        f"{name} = {earlier}",
        "optimizer = make()",
    ]


@pytest.mark.parametrize("earlier", ["yield", "yield from a"])
def test_so_is_what_gives_control_away(earlier: str) -> None:
    text = save(f"x = [({earlier}), {CALL.format('make()')}]").replace("async def", "def")
    assert first_lines(text) == [f"value = {earlier}", "optimizer = make()"]


@pytest.mark.parametrize(
    ("statement", "lines", "last"),
    [
        (
            "f({'m': sizes(a), 'n': 1, 'o': CALL})",
            ["m_value = sizes(a)"],
            "f({'m': m_value, 'n': 1, 'o': optim_state})",
        ),
        ("f(m=sizes(a), o=CALL)", ["m = sizes(a)"], "f(m=m, o=optim_state)"),
        ("f(self.x, step(), a, CALL)", ["x = self.x", "value = step()"], "f(x, value, a, optim_state)"),
        ("make().save(CALL, tail())", ["value = make()"], "value.save(optim_state, tail())"),
        ("d[step()] = CALL", [], "d[step()] = optim_state"),
        ("f(a.state_dict(), CALL)", [], "f(a.state_dict(), optim_state)"),
        ("torch.save(CALL, self.path())", [], "torch.save(optim_state, self.path())"),
        ("d['a']['b'] = CALL", [], "d['a']['b'] = optim_state"),
        ("x = [step()if a else 1, CALL]", ["value = step()if a else 1"], "x = [value, optim_state]"),
    ],
)
def test_what_runs_before_the_call_is_evaluated_first_and_the_rest_after(
    statement: str, lines: list[str], last: str
) -> None:
    text = save(statement.replace("CALL", CALL.format("optim")))
    assert first_lines(text) == lines
    assert rewrite_source(text).source.splitlines()[-1].strip() == last
    assert rewrite_source(rewrite_source(text).source).source == rewrite_source(text).source


def test_a_model_that_an_argument_may_change_is_the_one_from_before() -> None:
    after = rewrite_source(save("x = FSDP.full_optim_state_dict(self.model, self.prepare())")).source
    assert (
        "model_2 = self.model\n    optimizer = self.prepare()\n    with FSDP.state_dict_type(\n        model_2,"
        in after
    )
    assert "x = FSDP.optim_state_dict(model_2, optimizer)" in after


def test_a_flag_that_has_to_be_computed_is_so_before_the_block() -> None:
    text = save("x = FSDP.full_optim_state_dict(model, optim, rank0_only=a.pop())")
    assert first_lines(text) == ["rank0_only = a.pop()"]
    assert "rank0_only=rank0_only)" in rewrite_source(text).source


@pytest.mark.parametrize("earlier", ["a", "a + 1", "'text'", "(a, optim)"])
def test_what_cannot_have_changed_does_not_matter(earlier: str) -> None:
    new = rewrite_source(save(f"x = [{earlier}, {CALL.format('make()')}]")).source
    assert "FSDP.optim_state_dict(model, optimizer)" in new
    assert new.index("optimizer = make()") < new.index("with FSDP.state_dict_type(")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"x = lambda: {CALL}", "inside a lambda: write a function instead"),
        (f"x = [{CALL} for a in d]", "inside a comprehension: write a loop instead"),
        (f"x = {CALL} if a else None", "inside a conditional expression: write an `if` statement instead"),
        (
            f"while {CALL}:\n    pass",
            "in every iteration: use `while True` with a `break` in the body",
        ),
        (f"if a:\n    pass\nelif {CALL}:\n    pass", "in an `elif` condition"),
        (f"class A:\n    x = {CALL}", "in a class body"),
        (f"with a() as b, f({CALL}):\n    pass", "the same `with` enters"),
        (f"x = [*step(), {CALL}]", "runs before the call in the same statement"),
        (f"f(**step(), x={CALL})", "runs before the call in the same statement"),
        (f"d[step()] += {CALL}", "runs before the call in the same statement"),
        (f"x = f'{{step()}} {{len({CALL})}}'", "runs before the call in the same statement"),
        (f"x = [(a := 1), {CALL}]", "binds a name with `:=` before the call"),
        (f"x = f'{{{CALL}=}}'", "prints the source text"),
    ],
)
def test_a_call_that_has_no_place_for_a_block_is_manual(body: str, reason: str) -> None:
    check_manual(save(body.replace("{}", "optim")), "FSDP101", reason)
