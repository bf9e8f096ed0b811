"""What the installed torch can do."""

import torch
from packaging.version import Version

HAS_OPTIM_STATE_DICT = Version(torch.__version__) >= Version("2.0")
