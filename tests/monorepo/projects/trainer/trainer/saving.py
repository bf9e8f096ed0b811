import torch
import torch.distributed as dist

from core import FSDP, HAS_OPTIM_STATE_DICT, Tracked


def save(model, optim, path):
    # the same as FSDP.full_optim_state_dict on rank 0
    state = FSDP.full_optim_state_dict(model, optim)
    if dist.get_rank() == 0:
        torch.save(state, path)


def save_sharded(net, optim, path):
    model = Tracked(net)
    state = Tracked.sharded_optim_state_dict(model, optim)
    torch.save(state, f"{path}-{dist.get_rank()}")


def save_either(model, optim):
    if HAS_OPTIM_STATE_DICT:
        return FSDP.optim_state_dict(model, optim)
    return FSDP.full_optim_state_dict(model, optim)
