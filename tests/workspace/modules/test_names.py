from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.torch_api import TorchRange
from tests.workspace.modules.trees import PUBLIC, SAVE, codes_of, findings_of, grow, modules_of

DIST = {"mylib/__init__.py": "", "mylib/dist.py": PUBLIC}


@pytest.mark.parametrize(
    "line",
    [
        "from mylib.dist import FSDP",
        "from .dist import FSDP",
        "from mylib import dist\nFSDP = dist.FSDP",
        "from . import dist as d\nFSDP = d.FSDP",
        "import mylib.dist\nFSDP = mylib.dist.FSDP",
        "import mylib.dist as d\nFSDP = d.FSDP",
        "from mylib.dist import *",
        "try:\n    from .dist import FSDP\nexcept ImportError:\n    FSDP = None",
    ],
)
def test_fsdp_is_known_through_a_module_of_the_project(line: str, tmp_path: Path) -> None:
    grow(tmp_path, {**DIST, "mylib/save.py": f"{line}\n{SAVE}"})
    assert codes_of(tmp_path, "mylib/save.py") == ["FSDP101"]


@pytest.mark.parametrize(
    "tree",
    [
        {"mylib/__init__.py": "from .dist import FSDP\n"},
        {"mylib/__init__.py": "from .dist import *\n"},
        {"mylib/__init__.py": "from mylib.core import FSDP\n", "mylib/core/__init__.py": "from ..dist import FSDP\n"},
        {"mylib/__init__.py": "from . import dist as d\nFSDP = d.FSDP\n"},
        {"mylib/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .dist import FSDP\n"},
        {"mylib/__init__.py": "from .dist import (  # all of it\n    FSDP,\n)\n__all__ = ['FSDP']\n"},
    ],
)
def test_a_facade_is_looked_through(tree: dict[str, str], tmp_path: Path) -> None:
    grow(tmp_path, {**DIST, **tree, "train.py": f"from mylib import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


@pytest.mark.parametrize("place", ["", "src/", "packages/mylib/", "packages/mylib/src/"])
def test_packages_are_found_above_and_beside(place: str, tmp_path: Path) -> None:
    grow(tmp_path, {place + name: text for name, text in DIST.items()})
    grow(tmp_path, {"packages/app/src/app/__init__.py": "", "packages/app/src/app/train.py": "import mylib.dist\n"})
    text = f"from mylib.dist import FSDP\n{SAVE}"
    (tmp_path / "packages/app/src/app/train.py").write_text(text)
    assert codes_of(tmp_path, "packages/app/src/app/train.py") == ["FSDP101"]


def test_another_name_for_it_is_followed(tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": f"{PUBLIC}Wrapper = FSDP\n"})
    grow(tmp_path, {"train.py": "from mylib.dist import Wrapper\n" + SAVE.replace("FSDP", "Wrapper")})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]


def test_the_old_arm_of_a_version_check_in_the_other_module_does_not_count(tmp_path: Path) -> None:
    dist = """\
        import torch
        from packaging.version import parse
        if parse(torch.__version__) >= parse("2.0"):
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        else:
            from fairscale.nn import FullyShardedDataParallel as FSDP
        """
    grow(tmp_path, {"dist.py": dist, "train.py": f"from dist import FSDP\n{SAVE}"})
    (finding,) = findings_of(tmp_path, "train.py")
    assert finding.fix is not None
    view = modules_of(tmp_path).view(str(tmp_path / "train.py"), TorchRange.parse(">=1.13"))
    assert view.meanings("dist.FSDP") == (
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "fairscale.nn.FullyShardedDataParallel",
    )


def test_another_class_of_that_name_is_left_alone(tmp_path: Path) -> None:
    own = "class FSDP:\n    @staticmethod\n    def full_optim_state_dict(model, optim): ...\n"
    grow(tmp_path, {"dist.py": own, "train.py": f"import torch.distributed.fsdp\nfrom dist import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "train.py") == []


def test_modules_that_import_one_another_in_a_circle_are_no_trouble(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {"a.py": f"from b import FSDP\nfrom b import *\n{SAVE}", "b.py": "from a import FSDP\nfrom a import *\n"},
    )
    assert codes_of(tmp_path, "a.py") == []


def test_a_class_that_no_module_of_the_project_has_is_told_once(tmp_path: Path) -> None:
    grow(tmp_path, {"mine/__init__.py": "", "mine/dist.py": PUBLIC, "a.py": f"from mine.dist import FSDP\n{SAVE}"})
    grow(tmp_path, {"b.py": f"from theirs.dist import FSDP\n{SAVE}"})
    assert [codes_of(tmp_path, name) for name in ("a.py", "b.py")] == [["FSDP101"], ["FSDP003"]]


def test_a_command_that_another_module_takes_is_not_only_said(tmp_path: Path) -> None:
    usage = 'USAGE = "python -m torch.distributed.launch train.py"\nprint(USAGE)\n'
    grow(tmp_path, {"a.py": usage, "b.py": usage, "c.py": "import os\nfrom a import USAGE\nos.system(USAGE)\n"})
    found = [finding for name in ("a.py", "b.py") for finding in findings_of(tmp_path, name)]
    assert [finding.severity for finding in found] == [Severity.DEPRECATED, Severity.HINT]


def test_two_packages_of_one_name_beside_each_other_are_not_guessed_at(tmp_path: Path) -> None:
    grow(tmp_path, {"one/lib/__init__.py": PUBLIC, "two/lib/__init__.py": "FSDP = object()\n"})
    grow(tmp_path, {"app/train.py": f"from lib import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "app/train.py") == ["FSDP003"]


def test_nothing_outside_the_repository_is_looked_into(tmp_path: Path) -> None:
    grow(tmp_path / "other", {"dist.py": PUBLIC})
    (tmp_path / "dist.py").write_text(PUBLIC)
    root = grow(tmp_path / "repository", {".git/HEAD": "", "train.py": f"from dist import FSDP\n{SAVE}"})
    assert codes_of(root, "train.py") == ["FSDP003"]


def test_nothing_that_is_looked_into_is_run(tmp_path: Path) -> None:
    dist = f"{PUBLIC}open({str(tmp_path / 'ran')!r}, 'w')\n"
    grow(tmp_path, {"dist.py": dist, "train.py": f"from dist import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "train.py") == ["FSDP101"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["def broken(:\n", "\x00", "# coding: nonsense\n"])
def test_a_module_that_cannot_be_parsed_is_passed_over(text: str, tmp_path: Path) -> None:
    grow(tmp_path, {"dist.py": text + PUBLIC, "train.py": f"from dist import FSDP\n{SAVE}"})
    assert codes_of(tmp_path, "train.py") == []


def test_what_the_import_in_the_other_module_fails_with_is_said_there_only(tmp_path: Path) -> None:
    grow(tmp_path, {"compat.py": "from torch.distributed.fsdp.flat_param import FlatParamHandle\n"})
    text = "import torch\nfrom compat import FlatParamHandle\n\nshard = FlatParamHandle._get_shard\n"
    grow(tmp_path, {"train.py": text})
    assert "FSDP600" not in codes_of(tmp_path, "train.py", ">=2.1")
    assert codes_of(tmp_path, "compat.py", ">=2.1") != []
