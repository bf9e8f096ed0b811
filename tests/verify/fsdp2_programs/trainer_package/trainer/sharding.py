from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from .network import Layer


def wrap(module, config):
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    return FullyShardedDataParallel(
        module,
        auto_wrap_policy=policy,
        sharding_strategy=config.sharding_strategy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
