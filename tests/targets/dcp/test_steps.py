"""Whether an optimizer has stepped where its state is saved."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Applicability
from tests.targets.dcp.programs import IMPORTS, only

SAVE = """\
def save(model, optimizer):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return FSDP.optim_state_dict(model, optimizer)


"""


WITHIN = "\n    save(model, optimizer)"


@pytest.mark.parametrize(
    "train",
    [
        "for batch in data:\n    optimizer.step()\n    save(model, optimizer)",
        "for batch in data:\n    optimizer.step()\nsave(model, optimizer)",
        "for batch in data:\n    if batch % 2 == 0:\n        optimizer.step()\nsave(model, optimizer)",
        "for batch in data:\n    if batch % 2 == 0:\n        optimizer.step()\n        save(model, optimizer)",
        "for batch in data:\n    if fp16:\n        scaler.step(optimizer)\n    elif bf16:\n        optimizer.step()\n"
        + WITHIN,
        "for epoch in data:\n    epoch_of(model, optimizer)\n    save(model, optimizer)",
        "while True:\n    with data:\n        optimizer.step()\n    if data:\n        save(model, optimizer)",
    ],
)
def test_a_save_in_or_behind_the_training_loop_is_safe(train: str) -> None:
    body = train.replace("\n", "\n    ")
    helper = "\n\ndef epoch_of(model, optimizer):\n    for batch in ():\n        optimizer.step()\n"
    finding = only(f"{IMPORTS}{SAVE}def train(model, optimizer, data, fp16, bf16, scaler):\n    {body}\n{helper}")
    assert finding.applicability is Applicability.SAFE, finding.reason


@pytest.mark.parametrize(
    "train",
    [
        "save(model, optimizer)\nfor batch in data:\n    optimizer.step()",
        "for batch in data:\n    save(model, optimizer)\n    optimizer.step()",
        "for batch in data:\n    if batch % 2 == 0:\n        optimizer.step()\n    save(model, optimizer)",
        "for batch in data:\n    scheduler.step()\n    save(model, optimizer)",
        "if data:\n    optimizer.step()\nsave(model, optimizer)",
        "try:\n    optimizer.step()\nexcept ValueError:\n    save(model, optimizer)",
    ],
)
def test_a_save_that_may_come_before_the_first_step_is_unsafe(train: str) -> None:
    body = train.replace("\n", "\n    ")
    finding = only(f"{IMPORTS}{SAVE}def train(model, optimizer, data, scheduler):\n    {body}\n")
    assert finding.applicability is Applicability.UNSAFE
    assert "has not stepped" in (finding.reason or "")


def test_a_save_that_nobody_is_seen_to_call_is_unsafe() -> None:
    finding = only(IMPORTS + SAVE)
    assert "is not visible" in (finding.reason or "")
