from .config import Config
from .loop import Trainer

__all__ = ["Config", "Trainer"]
