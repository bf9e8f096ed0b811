"""FSDP as this company uses it."""

from torch.distributed.fsdp import FlatParameter, FullyShardedDataParallel as FSDP

Sharded = FSDP


class Tracked(FSDP):
    """A model that counts its steps."""

    steps = 0


def is_flat(parameter):
    return isinstance(parameter, FlatParameter)
