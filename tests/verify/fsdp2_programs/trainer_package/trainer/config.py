from dataclasses import dataclass

from torch.distributed.fsdp import ShardingStrategy

STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad_op": ShardingStrategy.SHARD_GRAD_OP}


@dataclass
class Config:
    strategy: str = "full"
    accumulate: int = 1
    clip: float = 0.8

    @property
    def sharding_strategy(self):
        return STRATEGIES[self.strategy]
