import torch
from torch.distributed.fsdp import FullyShardedDataParallel


def prepare(model, name):
    if name == "none":
        return model
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
