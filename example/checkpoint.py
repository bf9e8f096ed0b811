"""One file with everything, written by rank 0."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def save(model, optim, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = model.state_dict()
    state = FSDP.full_optim_state_dict(model, optim)
    if dist.get_rank() == 0:
        torch.save({"model": weights, "optim": state}, path)


def load(model, optim, path):
    saved = torch.load(path, map_location="cpu")
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(saved["model"])
    optim.load_state_dict(FSDP.scatter_full_optim_state_dict(saved["optim"], model, optim=optim))
