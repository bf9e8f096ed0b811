from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.workspace.modules.trees import PUBLIC, codes_of, grow

READ = "import torch\nfrom packaging.version import Version\n"
NEW = """\
def save(model, optim):
    if {test}:
        return FSDP.optim_state_dict(model, optim)
    return FSDP.full_optim_state_dict(model, optim)
"""


def lint(tmp_path: Path, line: str, test: str, torch: str = ">=2.1", **modules: str) -> list[str]:
    grow(tmp_path, {"mylib/__init__.py": "", **{f"mylib/{name}.py": text for name, text in modules.items()}})
    grow(tmp_path, {"mylib/train.py": f"{PUBLIC}{line}\n\n{NEW.format(test=test)}"})
    return codes_of(tmp_path, "mylib/train.py", torch)


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("from .versions import HAS_NEW_API", "HAS_NEW_API"),
        ("from . import versions", "versions.HAS_NEW_API"),
        ("from mylib.versions import HAS_NEW_API as new", "new"),
        ("from .versions import *", "HAS_NEW_API"),
        ("from .facade import HAS_NEW_API", "HAS_NEW_API"),
    ],
)
def test_a_constant_of_another_module_is_evaluated(line: str, test: str, tmp_path: Path) -> None:
    versions = f"{READ}HAS_NEW_API = Version(torch.__version__) >= Version('2.0')\n"
    facade = "from .versions import HAS_NEW_API\n"
    assert lint(tmp_path, line, test, versions=versions, facade=facade) == []


@pytest.mark.parametrize(
    "versions",
    [
        """\
        import torch
        from packaging.version import parse
        if parse(torch.__version__) >= parse("2.0"):
            HAS_NEW_API = True
        else:
            HAS_NEW_API = False
        """,
        """\
        try:
            from torch.distributed.fsdp import FullOptimStateDictConfig
            HAS_NEW_API = True
        except ImportError:
            HAS_NEW_API = False
        """,
        """\
        from .torch_info import VERSION
        HAS_NEW_API = VERSION >= (2, 0)
        """,
    ],
)
def test_flags_are_followed_through_conditions_and_further_modules(versions: str, tmp_path: Path) -> None:
    info = 'import torch\nVERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])\n'
    found = lint(
        tmp_path, "from .versions import HAS_NEW_API", "HAS_NEW_API", versions=dedent(versions), torch_info=info
    )
    assert found == []


def test_a_helper_function_of_another_module_is_called(tmp_path: Path) -> None:
    versions = """\
        import torch
        from packaging.version import Version

        def at_most(wanted):
            return Version(torch.__version__) <= Version(wanted)
        """
    line = "from .versions import at_most"
    assert lint(tmp_path, line, 'not at_most("1.13.1")', versions=dedent(versions)) == []
    assert lint(tmp_path, line, 'not at_most("2.1")', versions=dedent(versions)) == ["FSDP101"]


def test_what_a_constant_holds_counts_more_than_its_name(tmp_path: Path) -> None:
    versions = f"{READ}TORCH_GREATER_2_1 = Version(torch.__version__) > Version('2.1.2')\n"
    line = "from .versions import TORCH_GREATER_2_1"
    assert lint(tmp_path, line, "TORCH_GREATER_2_1", ">=2.2", versions=versions) == []
    assert lint(tmp_path, line, "TORCH_GREATER_2_1", ">=2.1", versions=versions) == ["FSDP101"]


def test_a_setting_of_another_module_decides_nothing(tmp_path: Path) -> None:
    versions = "import torch\nVERSION = torch.__version__\nHAS_NEW_API = True\n"
    assert lint(tmp_path, "from .versions import HAS_NEW_API", "HAS_NEW_API", versions=versions) == ["FSDP101"]


def test_constants_that_hang_on_one_another_in_a_circle_decide_nothing(tmp_path: Path) -> None:
    versions = "import torch\nfrom .other import B\nA = B if torch.__version__ else 1\n"
    other = "import torch\nfrom .versions import A\nB = A if torch.__version__ else 1\n"
    assert lint(tmp_path, "from .versions import A", "A", versions=versions, other=other) == ["FSDP101"]


MARKS = """\
import unittest
import pytest
import torch
from packaging.version import Version

NEW = Version(torch.__version__) >= Version("2.1")
needs_new = pytest.mark.skipif(not NEW, reason="new")
needs_old = pytest.mark.skipif(NEW, reason="old")

def require_old(test):
    return unittest.skipIf(NEW, "old")(test)
"""


@pytest.mark.parametrize(
    ("line", "mark", "codes"),
    [
        ("from .marks import needs_old", "needs_old", []),
        ("from . import marks", "marks.needs_old", []),
        ("from .marks import require_old as old", "old", []),
        ("from .marks import needs_new", "needs_new", ["FSDP101"]),
        ("from .other import needs_old", "needs_old", ["FSDP101"]),
    ],
)
def test_a_mark_of_another_module_is_evaluated(line: str, mark: str, codes: list[str], tmp_path: Path) -> None:
    test = f"@{mark}\ndef test_it(model, optim):\n    FSDP.full_optim_state_dict(model, optim)\n"
    tree = {"tests/__init__.py": "", "tests/marks.py": MARKS, "tests/test_it.py": f"{PUBLIC}{line}\n\n{test}"}
    grow(tmp_path, tree)
    assert codes_of(tmp_path, "tests/test_it.py", ">=2.1") == codes
