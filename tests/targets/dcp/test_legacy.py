"""The methods before torch 2.0 under the target: never back to a type that is set."""

from __future__ import annotations

from fsdp_migrate.findings import Applicability, Finding
from fsdp_migrate.lint import lint_source
from tests.targets.dcp.programs import IMPORTS, TORCH, rewritten

SAVE = """\
def save(model, optimizer, rank, path):
    state = FSDP.full_optim_state_dict(model, optimizer, rank0_only=True)
    if rank == 0:
        torch.save(state, path)


"""
LOAD = """\
def load(model, optimizer, state):
    optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer))
"""
STEPPED = """\
def train(net, data, rank):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in data:
        optimizer.step()
    save(model, optimizer, rank, "last")
"""


def found(text: str) -> list[Finding]:
    findings = lint_source(text, "a.py", TORCH, target="dcp")
    return [one for one in findings if one.code.startswith(("FSDP10", "FSDP2"))]


def test_where_the_new_function_does_the_same_it_is_called_at_once() -> None:
    text = IMPORTS + SAVE + STEPPED
    assert [(one.code, one.applicability) for one in found(text)] == [("FSDP101", Applicability.SAFE)]
    assert "state = get_optimizer_state_dict(model, optimizer, options=options)" in rewritten(text)


def test_a_load_waits_for_the_differences_to_be_accepted() -> None:
    text = IMPORTS + LOAD
    (one,) = found(text)
    assert (one.code, one.applicability) == ("FSDP104", Applicability.UNSAFE)
    assert "use `set_optimizer_state_dict`" in one.message
    assert "performs a step with learning rate 0" in (one.reason or "")
    assert rewritten(text) == text
    after = rewritten(text, unsafe=True)
    assert "set_optimizer_state_dict(model, optimizer, optim_state_dict=state, options=options)" in after
    assert "state_dict_type" not in after


def test_a_save_that_may_run_before_the_first_step_does_too() -> None:
    (one,) = found(IMPORTS + SAVE)
    assert (one.code, one.applicability) == ("FSDP101", Applicability.UNSAFE)
    assert "counts one step" in (one.reason or "")


def test_what_has_no_new_function_here_gets_the_fix_of_every_torch() -> None:
    text = IMPORTS + SAVE.replace("optimizer, rank0", "optimizer, group=group, rank0")
    assert "get_optimizer_state_dict" not in rewritten(text, unsafe=True)
