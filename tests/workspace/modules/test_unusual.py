"""FSDP that arrives in ways that no plain import shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.lint import lint_source
from tests.workspace.modules.trees import PUBLIC, SAVE, codes_of, findings_of, grow

FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
LATE = """\
import importlib
PLACES = {"FSDP": ".dist"}
def __getattr__(name):
    return getattr(importlib.import_module(PLACES[name], __name__), name)
"""


@pytest.mark.parametrize(
    "dist",
    [
        "from torch.distributed.fsdp \\\n    import FullyShardedDataParallel as FSDP\n",
        "from \\\n  torch.distributed.fsdp import \\\n    FullyShardedDataParallel \\\n  as FSDP\n",
        "import torch.distributed.fsdp as F\nFSDP, other = F.FullyShardedDataParallel, 1\n",
        "import torch.distributed.fsdp as F\nother = FSDP = F.FullyShardedDataParallel\n",
    ],
)
def test_a_module_may_bind_it_in_any_way(dist: str, tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": dist, "train.py": f"from mylib.dist import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_a_name_that_a_package_loads_late_is_followed(tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": LATE, "mylib/dist.py": PUBLIC, "train.py": f"from mylib import FSDP\n{SAVE}"})
    (found,) = findings_of(tmp_path, "train.py")
    assert (found.code, found.reason) == ("FSDP101", None)


def test_a_name_that_a_package_may_make_when_it_is_asked_for_is_in_doubt(tmp_path: Path) -> None:
    text = f"def __getattr__(name):\n    import {FSDP.rpartition('.')[0]} as f\n    return f.FullyShardedDataParallel\n"
    grow(tmp_path, {"mylib/__init__.py": text, "train.py": f"from mylib import FSDP\n{SAVE}"})
    (found,) = findings_of(tmp_path, "train.py")
    assert found.reason is not None
    assert "whether `FSDP` is an FSDP module or class" in found.reason


@pytest.mark.parametrize(
    ("dist", "brought", "owner"),
    [
        ("net = FSDP(build())\n", "net", "net"),
        ("CHOICES = {'fsdp': FSDP}\n", "CHOICES", "CHOICES['fsdp']"),
        ("class Wrappers:\n    fsdp = FSDP\n", "Wrappers", "Wrappers.fsdp"),
    ],
)
def test_what_the_project_holds_may_be_fsdp(dist: str, brought: str, owner: str, tmp_path: Path) -> None:
    save = SAVE.replace("FSDP", owner)
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": PUBLIC + dist})
    grow(tmp_path, {"train.py": f"from mylib.dist import {brought}\n{save}"})
    (found,) = findings_of(tmp_path, "train.py")
    assert found.code == "FSDP101"
    assert f"`{owner}` is an FSDP module or class" in (found.reason or "")


@pytest.mark.parametrize(
    ("dist", "line"),
    [
        ("def full_optim_state_dict(model, optim):\n    return None\n", "from mylib import dist as owner"),
        ("class owner:\n    def full_optim_state_dict(self, model):\n        pass\n", "from mylib.dist import owner"),
        ("def owner():\n    pass\n", "from mylib.dist import owner"),
    ],
)
def test_modules_classes_and_functions_of_the_project_are_not(dist: str, line: str, tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": PUBLIC + dist})
    grow(tmp_path, {"train.py": f"{line}\n{SAVE.replace('FSDP', 'owner')}"})
    assert codes_of(tmp_path, "train.py") == []


def test_what_a_project_without_fsdp_holds_is_not(tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": "owner = make()\n"})
    grow(tmp_path, {"train.py": f"from mylib.dist import owner\n{SAVE.replace('FSDP', 'owner')}"})
    assert codes_of(tmp_path, "train.py") == []


@pytest.mark.parametrize(
    ("head", "owner"),
    [
        (f"import torch\nclass C:\n    fsdp = {FSDP}\n", "C.fsdp"),
        ("import importlib\nd = importlib.import_module('torch.distributed.fsdp')\n", "d.FullyShardedDataParallel"),
        ("import sys\n", "sys.modules['torch.distributed.fsdp'].FullyShardedDataParallel"),
        (f"import torch\nC = {{'fsdp': {FSDP}}}\n", "C['fsdp']"),
        (PUBLIC, "(FSDP if sharded else None)"),
    ],
)
def test_what_a_file_holds_may_be_fsdp(head: str, owner: str) -> None:
    (found,) = lint_source(head + SAVE.replace("FSDP", owner))
    assert found.code == "FSDP101"
    assert "is an FSDP module or class" in (found.reason or "")
