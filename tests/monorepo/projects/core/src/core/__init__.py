"""What the other packages build on."""

from .dist import FSDP, Sharded, Tracked
from .versions import HAS_OPTIM_STATE_DICT

__all__ = ["FSDP", "HAS_OPTIM_STATE_DICT", "Sharded", "Tracked"]
