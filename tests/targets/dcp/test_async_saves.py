"""FSDP716: shards that the default stager of `async_save` cannot copy."""

from __future__ import annotations

import pytest

from tests.rules.checks import check_manual, check_noop

IMPORT = """\
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class App(Stateful):
    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return {"model": get_model_state_dict(self.model)}


"""
BUILT = "model = FSDP(net)\n"
STATE = "state = {'model': get_model_state_dict(model)}\n"
SAVE = "dcp.async_save(state, checkpoint_id=path)\n"


@pytest.mark.parametrize(
    "text",
    [
        BUILT + STATE + SAVE,
        BUILT + STATE + SAVE.replace("=path)", "=path, storage_writer=None)"),
        BUILT + "state = {}\nstate['model'] = get_model_state_dict(model)\n" + SAVE,
        BUILT + "weights, moments = get_state_dict(model, optim)\ndcp.async_save({'o': moments}, checkpoint_id=path)\n",
        BUILT + "dcp.async_save({'app': App(model)}, checkpoint_id=path)\n",
        BUILT + STATE.replace("(model)", "(model, options=StateDictOptions(cpu_offload=True))") + SAVE,
    ],
)
def test_shards_without_a_mesh_are_found(text: str) -> None:
    check_manual(IMPORT + text, "FSDP716", "storage_writer=FileSystemWriter(path)")


@pytest.mark.parametrize(
    "text",
    [
        BUILT + STATE + SAVE.replace("checkpoint_id=path", "storage_writer=dcp.FileSystemWriter(path)"),
        BUILT + STATE + SAVE.replace("=path)", "=path, async_stager=stager)"),
        BUILT + STATE + SAVE.replace("=path)", "=path, **more)"),
        BUILT + STATE + SAVE.replace("async_", ""),
        "model = FSDP(net, device_mesh=mesh)\n" + STATE + SAVE,
        "model = FSDP(net, **arguments)\n" + STATE + SAVE,
        "model = FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)\n" + STATE + SAVE,
        BUILT + STATE.replace("(model)", "(model, options=StateDictOptions(full_state_dict=True))") + SAVE,
        BUILT + STATE.replace("(model)", "(other)") + SAVE,
        STATE + SAVE,
        BUILT + "dcp.async_save({'app': App(other)}, checkpoint_id=path)\n",
    ],
)
def test_what_is_copied_or_cannot_be_told_is_left(text: str) -> None:
    check_noop(IMPORT + text, "FSDP716")


def test_older_releases_copy_them() -> None:
    check_noop(IMPORT + BUILT + STATE + SAVE, "FSDP716", torch=">=2.4,<2.9")
