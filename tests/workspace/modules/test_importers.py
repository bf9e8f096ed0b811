from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import discover
from fsdp_migrate.workspace.workspace import Workspace
from tests.workspace.modules.trees import PUBLIC, grow, report_of, rewritten

LOAD = f"""\
{PUBLIC}
def load(model, optimizer, osd):
    optimizer.load_state_dict(FSDP.scatter_full_optim_state_dict(osd, model))
"""
MAIN = "from ckpt import load\n\ndef main(model, optimizer, osd):\n    load(model, optimizer, osd)\n"


def test_a_report_says_that_it_asked_who_imports_the_file(tmp_path: Path) -> None:
    grow(tmp_path, {"ckpt.py": LOAD, "a.py": MAIN})
    assert report_of(tmp_path, "ckpt.py").asked_all
    assert not report_of(tmp_path, "a.py").asked_all


@pytest.mark.parametrize(
    "line",
    [
        "from lib import FlatParameter",
        "from lib import *",
        "import lib\nlib.FlatParameter",
        "from .lib import FlatParameter",
        "from lib import flat\npackage.lib.FlatParameter",
        "import lib\n\ndef test(monkeypatch):\n    monkeypatch.setattr(lib, 'FlatParameter', Fake)",
        'import lib\nmock.patch.object(lib, "FlatParameter", Fake)',
        "def test(monkeypatch):\n    monkeypatch.setattr('lib.FlatParameter', Fake)",
        'mock.patch("lib.FlatParameter", Fake)',
    ],
)
def test_an_import_that_another_module_takes_stays(line: str, tmp_path: Path) -> None:
    text = "from torch.distributed.fsdp import FlatParameter\n\ndef flat(ps):\n    return {}\n"
    grow(tmp_path, {"lib.py": text.format("any(isinstance(p, FlatParameter) for p in ps)")})
    assert b"import FlatParameter" not in rewritten(tmp_path, "lib.py").raw
    grow(tmp_path, {"other.py": "mock.patch('library.FlatParameter')\nx.FlatParameter\n'lib.FlatParameters'\n"})
    assert b"import FlatParameter" not in rewritten(tmp_path, "lib.py").raw
    grow(tmp_path, {"other.py": "from lib import flat\nfsdp.FlatParameter\n'FlatParameter'\n"})
    assert b"import FlatParameter" not in rewritten(tmp_path, "lib.py").raw
    grow(tmp_path, {"user.py": f"{line}\n"})
    assert b"import FlatParameter" in rewritten(tmp_path, "lib.py").raw


@pytest.mark.parametrize(
    ("files", "is_met"),
    [
        ({"b.py": "from lib.c import f\n", "lib/__init__.py": "", "lib/c.py": "x = 'meta'\n"}, True),
        ({"b.py": "from lib import c\n", "lib/__init__.py": "x = 'meta'\n", "lib/c.py": ""}, True),
        ({"main.py": "import a\nfrom other import make\n", "other.py": "x = 'meta'\n"}, True),
        ({"main.py": "import a\n", "test_all.py": "import main\n'meta'\n"}, True),
        ({"other.py": "import b\n'meta'\n"}, False),
        ({"lib/__init__.py": "", "lib/b.py": "'meta'\n"}, False),
    ],
)
def test_what_runs_with_a_module_is_what_imports_connect(tmp_path: Path, files: dict[str, str], is_met: bool) -> None:
    grow(tmp_path, {"a.py": "from b import *\n", "b.py": "", **files})
    modules = Workspace(discover([str(tmp_path)])).modules
    facts = modules.facts(str(tmp_path / "a.py"), TorchRange.parse(">=2.6"))
    assert facts is not None
    assert facts.project is not None
    assert facts.project.is_in_program("meta") == is_met
    assert facts.project.is_written("meta")
