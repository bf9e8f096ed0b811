"""A state-dict type that is set once, for all that a program does with a model afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.fsdp2.programs import check_stays, plan

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


"""
SET = "FSDP.set_state_dict_type({}, StateDictType.SHARDED_STATE_DICT)"
BUILT = """\
def build(net):
    model = FSDP(net, use_orig_params=True)
    {between}
    {setter}
    return model


def save(model):
    return model.state_dict()


def main(net, path):
    model = build(net)
    {use}
"""
CLASS = """\
class Saver:
    def __init__(self, model):
        self.model = model
        {before}
        {setter}

    def save(self, path):
        torch.save(self.model.state_dict(), path)

    def load(self, state):
        self.model.load_state_dict(state)


def main(net, path):
    model = FSDP(net, use_orig_params=True)
    {use}
    saver = Saver(model)
    saver.load(torch.load(path))
    saver.save(path)
"""


def built(between: str = "torch.cuda.empty_cache()", setter: str = SET.format("model"), use: str = "") -> str:
    return HEAD + BUILT.format(between=between, setter=setter, use=use or "torch.save(save(model), path)")


def of_class(before: str = "print(1)", setter: str = SET.format("self.model"), use: str = "print(2)") -> str:
    return HEAD + CLASS.format(before=before, setter=setter, use=use)


def test_where_the_model_is_wrapped(tmp_path: Path) -> None:
    text = plan(tmp_path, built()).texts["train.py"]
    assert "    return get_model_state_dict(model)\n" in text
    assert "set_state_dict_type" not in text
    assert "StateDictType" not in text


def test_where_an_object_is_made_that_alone_asks(tmp_path: Path) -> None:
    text = plan(tmp_path, of_class()).texts["train.py"]
    assert "torch.save(get_model_state_dict(self.model), path)" in text
    assert "set_model_state_dict(self.model, state)\n" in text
    assert "set_state_dict_type" not in text


@pytest.mark.parametrize(
    "program",
    [
        built(between="save(model)"),
        built(between="saved = model.state_dict()"),
        built(setter=f"if net.sharded:\n        {SET.format('model')}"),
        built(use=f"{SET.format('model')}\n    torch.save(save(model), path)"),
        of_class(use="torch.save(model.state_dict(), path)"),
        of_class(before="print(self.model.state_dict())"),
        of_class(setter=f"if model.training:\n            {SET.format('self.model')}"),
    ],
)
def test_elsewhere_it_is_not_plain_what_it_is_in_force_for(tmp_path: Path, program: str) -> None:
    check_stays(tmp_path, program, "the type stays set")
