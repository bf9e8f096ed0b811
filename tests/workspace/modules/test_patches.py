"""What one module of a project puts in the place of a name of torch is not migrated in the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.modules import Modules
from tests.workspace.modules.trees import PUBLIC, SAVE, grow, report_of, rewritten

LEGACY = "full_optim_state_dict"


def project(tmp_path: Path, patches: str, save: str = PUBLIC + SAVE) -> Path:
    shared = f"{PUBLIC}import torch.distributed as dist\n"
    return grow(tmp_path, {"lib/__init__.py": "", "lib/shared.py": shared, "lib/save.py": save, "lib/p.py": patches})


@pytest.mark.parametrize(
    "patches",
    [
        f"{PUBLIC}FSDP.{LEGACY} = staticmethod(mine)\n",
        f"from . import shared\n\nshared.FSDP.{LEGACY} = mine\n",
        f"from .shared import FSDP as F\n\ndef patch():\n    F.{LEGACY} = mine\n",
        f"{PUBLIC}setattr(FSDP, '{LEGACY}', mine)\n",
    ],
)
def test_a_call_of_what_another_module_replaces_stays(patches: str, tmp_path: Path) -> None:
    project(tmp_path, patches)
    (found,) = report_of(tmp_path, "lib/save.py").findings
    assert (found.code, found.applicability) == ("FSDP101", Applicability.MANUAL)
    assert "lib/p.py:" in (found.reason or "")
    assert "replaces it with an object of your own" in (found.reason or "")
    assert rewritten(tmp_path, "lib/save.py").raw.decode() == PUBLIC + SAVE


def test_what_another_project_of_the_run_replaces_makes_no_difference(tmp_path: Path) -> None:
    project(tmp_path, "")
    grow(tmp_path / "other", {"patches.py": f"{PUBLIC}FSDP.{LEGACY} = mine\n"})
    (found,) = report_of(tmp_path, "lib/save.py").findings
    assert found.applicability is Applicability.SAFE


def test_a_function_that_another_module_replaces_keeps_its_name(tmp_path: Path) -> None:
    save = "import torch.distributed as dist\ndist._all_gather_base(whole, part)\n"
    project(tmp_path, "from .shared import dist\ndist._all_gather_base = counted\n", save)
    (found,) = report_of(tmp_path, "lib/save.py").findings
    assert "lib/p.py:2 replaces it with an object of your own" in (found.reason or "")


@pytest.mark.parametrize(
    "patches",
    [
        f"class Mine:\n    {LEGACY} = None\n",
        f"from lib.engine import Engine\nEngine.{LEGACY} = mine\n",
        f"def f(self):\n    self.{LEGACY} = mine\n",
        f"{PUBLIC}def test(monkeypatch):\n    monkeypatch.setattr(FSDP, '{LEGACY}', mine)\n",
        f"{PUBLIC}from unittest import mock\nmock.patch.object(FSDP, '{LEGACY}')\n",
        f"{PUBLIC}x = FSDP.{LEGACY} == mine\n",
        f"{PUBLIC}import torch\nif torch.__version__ < '2.0':\n    FSDP.{LEGACY} = mine\n",
    ],
)
def test_what_is_replaced_elsewhere_or_in_tests_alone_makes_no_difference(patches: str, tmp_path: Path) -> None:
    project(tmp_path, patches)
    (found,) = report_of(tmp_path, "lib/save.py").findings
    assert found.applicability is Applicability.SAFE


def test_a_file_that_was_not_given_is_called_by_its_place_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, f"{PUBLIC}FSDP.{LEGACY} = mine\n")
    monkeypatch.chdir(tmp_path)
    modules = Modules(filesystem.discover(["lib/save.py"]).files)
    (found,) = report_of(Path(), "lib/save.py", modules=modules).findings
    assert f"{Path('lib/p.py')}:2 replaces" in (found.reason or "")
    assert str(tmp_path) not in (found.reason or "")
