from __future__ import annotations

import pytest

from fsdp_migrate.code.instance_members import FSDP2, MESH, MESHES, SHARDED, STRATEGY, members_used
from fsdp_migrate.facts import ModuleFacts
from fsdp_migrate.facts.fsdp import FSDP
from fsdp_migrate.rules.changed_names import changed_words, has_changed
from fsdp_migrate.source import Source
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.torch_api.unread import WARNINGS

MODEL = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(net)
"""


def read(text: str) -> list[str]:
    facts = ModuleFacts(Source(text.encode()), "x.py", TorchRange.default())
    return [path for path, _ in members_used(facts)]


@pytest.mark.parametrize(
    "cls", [FSDP, FSDP2, MESH, "torch.distributed.device_mesh.DeviceMesh", MESHES, SHARDED, STRATEGY]
)
def test_every_class_has_members_that_changed(cls: str) -> None:
    assert any(has_changed(f"{cls}.{word}") for word in changed_words())


def test_all_changed_members_of_a_model_are_told_and_no_others() -> None:
    words = sorted(changed_words() | {"forward_twice", "module"})
    text = MODEL + "".join(f"model.{word}\n" for word in words if word.isidentifier())
    assert read(text) == [f"{FSDP}.{word}" for word in words if has_changed(f"{FSDP}.{word}") or _of_others(word)]


def _of_others(word: str) -> bool:
    """Whether another class has a member of this name that changed; whose the name is makes no difference."""
    if f"{SHARDED}.{word}" in WARNINGS:
        return True
    others = (FSDP2, MESH, "torch.distributed.device_mesh.DeviceMesh", MESHES, STRATEGY)
    return any(has_changed(f"{cls}.{word}") for cls in others)
