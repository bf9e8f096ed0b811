"""Uses of moved names that go through the modules of a project, or that another module patches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
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
