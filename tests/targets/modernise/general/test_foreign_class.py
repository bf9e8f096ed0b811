from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from tests.rules.checks import check_noop, lint

CODE = "FSDP003"
USE = "FSDP.full_optim_state_dict(model, optim)\n"


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("from theirlib import FSDP\n", "theirlib.FSDP", 1),
        (
            "from lightning.fabric import FullyShardedDataParallel as X\n",
            "lightning.fabric.FullyShardedDataParallel",
            1,
        ),
        ("def f():\n    from theirlib import FSDP\n", "theirlib.FSDP", 2),
        ("import theirlib.dist as d\nmodel = d.FSDP(net)\n", "theirlib.dist.FSDP", 2),
        ("import theirlib\nclass M(theirlib.FullyShardedDataParallel): ...\n", "theirlib.FullyShardedDataParallel", 2),
        ("from theirlib import FSDP\nimport theirlib\ntheirlib.FSDP(net)\n", "theirlib.FSDP", 1),
    ],
)
def test_a_class_from_a_library_is_told_once_a_file(text: str, name: str, line: int) -> None:
    (found,) = lint(text + USE, CODE)
    assert (found.severity, found.line, found.fix) == (Severity.HINT, line, None)
    assert found.message == f"`{name}` is not part of the project: the use of FSDP is not checked here"
    assert found.reason == "if it is torch's class, import `FullyShardedDataParallel` from `torch.distributed.fsdp`"


def test_several_libraries_stand_in_one_hint() -> None:
    (found,) = lint(f"try:\n    from one import FSDP\nexcept ImportError:\n    from two import FSDP\n{USE}", CODE)
    assert found.message.startswith("`one.FSDP` and `two.FSDP` are not part of the project: ")


@pytest.mark.parametrize(
    "text",
    [
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
        "import torch\nFSDP = torch.distributed.fsdp.FullyShardedDataParallel\n",
        "from fairscale.nn import FullyShardedDataParallel as FSDP\n",
        "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP\n",
        "from accelerate import DistributedType\nif kind == DistributedType.FSDP: ...\n",
        "from theirlib import FSDPStrategy, config\nif config.FSDP.enabled: ...\n",
        "from .dist import FSDP\n",
    ],
)
def test_torchs_class_those_of_others_and_what_only_looks_like_it_are_left(text: str) -> None:
    check_noop(text + USE, CODE)
