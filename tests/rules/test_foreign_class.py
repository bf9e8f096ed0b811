from __future__ import annotations

import pytest
from click.testing import CliRunner

from fsdp_migrate.cli import cli
from fsdp_migrate.findings import Severity
from tests.rules.checks import check_noop, lint
from tests.trees import plant

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
    assert found.message == f"`{name}` comes from outside of the project: what is done with it here is not checked"
    assert found.reason == "if it is torch's class, import `FullyShardedDataParallel` from `torch.distributed.fsdp`"


def test_several_libraries_stand_in_one_hint() -> None:
    (found,) = lint(f"try:\n    from one import FSDP\nexcept ImportError:\n    from two import FSDP\n{USE}", CODE)
    assert found.message.startswith("`one.FSDP` and `two.FSDP` come from outside of the project: ")


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


def test_what_the_project_has_is_followed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    passed_on = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    plant({"mine/__init__.py": "", "mine/dist.py": passed_on, "a.py": f"from mine.dist import FSDP\n{USE}"})
    plant({"b.py": f"from theirs.dist import FSDP\n{USE}"})
    printed = CliRunner().invoke(cli, ["lint", "--hints"]).stdout
    assert [line.split(" ")[:2] for line in printed.splitlines() if line[1:4] == ".py"] == [
        ["a.py:2:1:", "FSDP101"],
        ["b.py:1:25:", "FSDP003"],
    ]
