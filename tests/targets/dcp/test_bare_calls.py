"""Optimizer states that are asked for and loaded under no type."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.targets.dcp.programs import IMPORTS, found, only, rewritten

SAVE = """\
def save(model, optimizer, rank, path):
    state = FSDP.optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save(state, path)


"""
TRAIN = """\
def train(net, data, rank):
    model = FSDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in data:
        optimizer.step()
    save(model, optimizer, rank, "last")
"""
LOADS = "optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, path))"


def test_they_get_the_options_of_the_default_type() -> None:
    text = IMPORTS + SAVE + TRAIN
    assert only(text).applicability is Applicability.SAFE
    assert "`FSDP.optim_state_dict` works on FSDP1 only: use `get_optimizer_state_dict`" in only(text).message
    after = rewritten(text)
    assert "    options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n" in after
    assert "    state = get_optimizer_state_dict(model, optimizer, options=options)\n" in after


def test_other_ranks_that_use_it_have_it_on_their_device() -> None:
    finding = only(IMPORTS + SAVE.replace("    if rank == 0:\n    ", "") + TRAIN)
    assert finding.applicability is Applicability.UNSAFE
    assert "on its device instead of the CPU" in (finding.reason or "")


def test_a_load_is_unsafe_and_needs_the_dict_on_every_rank() -> None:
    text = IMPORTS + f"def load(model, optimizer, path):\n    {LOADS}\n"
    assert only(text).applicability is Applicability.UNSAFE
    after = rewritten(text, unsafe=True)
    assert "    options = StateDictOptions(full_state_dict=True)\n" in after
    assert "    set_optimizer_state_dict(model, optimizer, optim_state_dict=path, options=options)\n" in after


def test_whether_a_type_is_set_is_asked_of_the_callers() -> None:
    assert "callers of `save` set a type" in (only(IMPORTS + SAVE).reason or "")
    within = "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n        save("
    assert found(IMPORTS + SAVE + TRAIN.replace("    save(", within))[0].applicability is Applicability.MANUAL
    assert len(found(IMPORTS + SAVE + TRAIN.replace("    save(", within))) == 1
    stays = TRAIN.replace("    save(", "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n    save(")
    assert len(found(IMPORTS + SAVE + stays)) == 1
    unknown = TRAIN.replace("    save(", "    with typed(model):\n        save(")
    assert found(IMPORTS + SAVE + unknown) == []


@pytest.mark.parametrize(
    "call",
    [
        "FSDP.optim_state_dict_to_load(path, model, optimizer)",
        "FSDP.optim_state_dict(*path)",
        "other.optim_state_dict(model, optimizer)",
        "FSDP.optim_state_dict(model, optimizer, group=path)",
    ],
)
def test_what_the_new_functions_cannot_do_is_not_told_of(call: str) -> None:
    assert found(IMPORTS + f"def f(model, optimizer, path, other):\n    return {call}\n") == []


def test_a_models_own_state_under_no_type_stays() -> None:
    assert found(IMPORTS + "def f(net):\n    model = FSDP(net)\n    return model.state_dict()\n") == []
