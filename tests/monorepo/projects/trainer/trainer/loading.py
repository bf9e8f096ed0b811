import torch
from core.dist import Sharded


def read(model, path):
    return Sharded.scatter_full_optim_state_dict(torch.load(path), model)
