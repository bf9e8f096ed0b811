"""Uses of moved names that go through the modules of a project, or that another module patches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.targets.modernise.moved.moves import MOVES
from tests.workspace.modules.trees import findings_of, grow, rewritten

GATHER = "from torch.distributed import _all_gather_base\n\ndef f(a, b):\n    _all_gather_base(a, b)\n"


@pytest.mark.parametrize(
    "patch",
    [
        'mock.patch("comm._all_gather_base")',
        'mock.patch.object(comm, "_all_gather_base")',
        "monkeypatch.setattr('comm._all_gather_base', fake)",
    ],
)
def test_a_name_that_another_module_patches_keeps_its_name(patch: str, tmp_path: Path) -> None:
    grow(tmp_path, {"comm.py": GATHER, "test_comm.py": f"from unittest import mock\nimport comm\n\n{patch}\n"})
    text = rewritten(tmp_path, "comm.py").raw.decode()
    assert text == GATHER.replace("import _all", "import all_gather_into_tensor as _all")


def test_a_region_that_comes_through_a_facade_is_called_through_torch(tmp_path: Path) -> None:
    grow(tmp_path, {"compat.py": "from torch.cuda.amp import autocast\n"})
    text = "import torch\nimport torch.distributed\nfrom compat import autocast\n\nwith autocast():\n    pass\n"
    grow(tmp_path, {"train.py": text})
    (finding,) = (one for one in findings_of(tmp_path, "train.py") if one.code == "FSDP801")
    assert finding.applicability is Applicability.SAFE
    after = rewritten(tmp_path, "train.py").raw.decode()
    assert 'with torch.amp.autocast("cuda", dtype=torch.float16):' in after
    assert "compat" not in after


def test_a_class_that_other_modules_take_from_here_keeps_its_import(tmp_path: Path) -> None:
    text = "import torch\nimport torch.distributed\nfrom torch.cuda.amp import GradScaler\n\ns = GradScaler()\n"
    grow(tmp_path, {"train.py": text, "other.py": "from train import GradScaler\n\nGradScaler(2.0)\n"})
    after = rewritten(tmp_path, "train.py", ">=2.4").raw.decode()
    assert after == text.replace("s = GradScaler()", 's = torch.amp.GradScaler("cuda")')


def test_a_class_that_another_module_only_has_the_name_of_moves(tmp_path: Path) -> None:
    text = "import torch.distributed\nfrom torch.cuda.amp import GradScaler\n\ndef build():\n    return GradScaler()\n"
    other = "import torch\nfrom train import build\n\nassert isinstance(build(), torch.cuda.amp.GradScaler)\n"
    grow(tmp_path, {"train.py": text, "other.py": other})
    after = rewritten(tmp_path, "train.py", ">=2.4").raw.decode()
    assert after == text.replace("torch.cuda.amp", "torch.amp").replace("GradScaler()", 'GradScaler("cuda")')


@pytest.mark.parametrize(
    "other", ["import pkg\npkg.train.GradScaler(1.0)\n", "patch.object(pkg.train, 'GradScaler')\n"]
)
def test_a_class_that_another_module_reaches_through_the_package_keeps_its_import(other: str, tmp_path: Path) -> None:
    text = "import torch.distributed\nfrom torch.cuda.amp import GradScaler\n\ns = GradScaler()\n"
    other = f"from pkg.train import s\nimport pkg\n{other}"
    grow(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": text, "other.py": other})
    assert "from torch.cuda.amp import GradScaler" in rewritten(tmp_path, "pkg/train.py", ">=2.4").raw.decode()


ROWS = sorted({move.old for move in MOVES if not move.whole})


@pytest.mark.parametrize("old", ROWS)
def test_what_a_test_patches_is_what_the_module_uses_whatever_the_row(old: str, tmp_path: Path) -> None:
    module, _, name = old.rpartition(".")
    named = f"import torch\nfrom {module} import {name}\n\n\ndef f(a):\n    {name}(a)\n"
    chained = f"import torch\nimport {module} as owner\n\n\ndef f(a):\n    owner.{name}(a)\n"
    patches = f"mock.patch('named.{name}')\nmock.patch('chained.owner.{name}')\n"
    grow(tmp_path, {"test_it.py": f"from unittest import mock\n{patches}", "named.py": named, "chained.py": chained})
    after = rewritten(tmp_path, "named.py", ">=2.4").raw.decode()
    assert f"    {name}(a)\n" in after
    assert re.search(rf"import .*\b{name}\b", after)
    assert f"    owner.{name}(a)\n" in rewritten(tmp_path, "chained.py", ">=2.4").raw.decode()


@pytest.mark.parametrize(
    ("head", "use", "old"),
    [
        ("import torch\nimport torch.distributed\n", "torch.cuda.amp.autocast()", "torch.cuda.amp.autocast"),
        ("import torch\nimport torch.distributed\n", "torch.cuda.amp.GradScaler()", "torch.cuda.amp.GradScaler"),
        ("import torch.distributed as dist\n", "dist._all_gather_base(a, b)", "torch.distributed._all_gather_base"),
        ("import torch.distributed as dist\n", "dist.reduce_op.SUM", "torch.distributed.reduce_op"),
    ],
)
def test_what_a_test_patches_in_torch_is_what_is_used(head: str, use: str, old: str, tmp_path: Path) -> None:
    text = f"{head}\ndef f(a, b):\n    return {use}\n"
    owner, _, name = old.rpartition(".")
    patches = f"import torch\n\n\ndef test(monkeypatch):\n    monkeypatch.setattr({owner}, '{name}', fake)\n"
    grow(tmp_path, {"train.py": text, "test_it.py": patches})
    assert rewritten(tmp_path, "train.py", ">=2.4").raw.decode() == text
    assert "test_it.py patches" in (findings_of(tmp_path, "train.py", ">=2.4")[0].reason or "")
    grow(tmp_path, {"test_it.py": patches.replace(name, "other")})
    assert rewritten(tmp_path, "train.py", ">=2.4").raw.decode() != text


def test_the_result_of_a_function_counts_in_other_modules_too(tmp_path: Path) -> None:
    text = "from torch.distributed.fsdp._utils import _free_storage\n\n\ndef free(t):\n    _free_storage(t)\n"
    grow(tmp_path, {"util.py": text, "other.py": "from util import _free_storage\n\nassert _free_storage(t)\n"})
    assert rewritten(tmp_path, "util.py").raw.decode() == text
    grow(tmp_path, {"other.py": "from util import free\n\nfree(t)\n"})
    assert rewritten(tmp_path, "util.py").raw.decode() == text.replace("fsdp._utils", "utils")
