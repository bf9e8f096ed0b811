from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate import runner
from fsdp_migrate.commands.cli import cli
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.modules.view import View
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.settings import Layer
from tests.workspace.modules.trees import PUBLIC, codes_of, grow

BUILD = "def build(net):\n    return Wrapper(net)\n"
COMPAT = "import torch.distributed as collectives\n# FullyShardedDataParallel\n"
CHAIN = "def is_new(x):\n    return isinstance(x, collectives._tensor.DTensor)\n"


def found(root: Path) -> list[tuple[str, str]]:
    configuration = Configuration(Layer(torch=TorchRange.parse(">=1.12"), hints=True))
    plan = runner.lint(filesystem.discover([str(root)]), configuration)
    assert plan.failures == ()
    assert plan.files_checked == len(list(root.rglob("*.py")))
    return [(Path(finding.path).relative_to(root).as_posix(), finding.code) for finding in plan.findings]


@pytest.mark.parametrize(
    "tree",
    [
        {"train.py": f"from mylib.dist import Wrapper\n{BUILD}"},
        {"train.py": f"import mylib.dist as d\n{BUILD.replace('Wrapper', 'd.Wrapper')}"},
        {"train.py": f"import mylib.dist\n{BUILD.replace('Wrapper', 'mylib.dist.Wrapper')}"},
        {
            "mylib/api.py": "from .dist import Wrapper as Net\n",
            "train.py": f"from mylib.api import Net as Wrapper\n{BUILD}",
        },
        {"mylib/api.py": "from .dist import *\n", "train.py": f"from mylib.api import Wrapper\n{BUILD}"},
        {"train.py": f"from mylib.dist import *\n{BUILD}"},
        {
            "mylib/__init__.py": "from . import dist\n",
            "train.py": f"import mylib\n{BUILD.replace('Wrapper', 'mylib.dist.Wrapper')}",
        },
        {
            "mylib/__init__.py": "from . import dist\n",
            "outer/__init__.py": "import mylib as lib\n",
            "train.py": f"import outer\n{BUILD.replace('Wrapper', 'outer.lib.dist.Wrapper')}",
        },
        {
            "mylib/__init__.py": "from . import dist as d\n",
            "train.py": f"from mylib import d\n{BUILD.replace('Wrapper', 'd.Wrapper')}",
        },
        {"train.py": f"from mylib.dist import Derived as Wrapper\n{BUILD}"},
    ],
)
def test_a_file_that_gets_fsdp_under_another_name_is_linted(tree: dict[str, str], tmp_path: Path) -> None:
    dist = f"{PUBLIC}Wrapper = FSDP\nclass Derived(FSDP):\n    pass\n"
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": dist, **tree})
    assert ("train.py", "FSDP507") in found(tmp_path)


@pytest.mark.parametrize("by_line", [True, False])
@pytest.mark.parametrize("line", ["from mylib.dist import Wrapper", "import mylib.dist as d\nWrapper = d.Wrapper"])
def test_a_notebook_that_gets_fsdp_under_another_name_is_linted(line: str, by_line: bool, tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": f"{PUBLIC}Wrapper = FSDP\n"})
    code = f"import os\n{line}\n{BUILD}"
    source = code.splitlines(keepends=True) if by_line else code
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}
    notebook = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    configuration = Configuration(Layer(torch=TorchRange.parse(">=1.12"), hints=True))
    plan = runner.lint(filesystem.discover([str(tmp_path)]), configuration)
    assert ("train.ipynb", "FSDP507") in [(Path(finding.path).name, finding.code) for finding in plan.findings]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "line",
    [
        "from mylib.dist import other, Wrapper",
        "from mylib.dist import (other,  # :)\n    # (and)\n    Wrapper,\n)",
        "from mylib.dist import \\\n    other, \\\n    Wrapper",
        "from mylib.dist import \\\n  (other,\n  Wrapper)",
        "from mylib.dist import Wrapper as W; Wrapper = W",
        "try: from mylib.dist import Wrapper\nexcept ImportError: pass",
        "from mylib.dist import  *",
        "from mylib.dist import \\\n  *",
        "from mylib import dist\nWrapper = dist.Wrapper",
        "from mylib import (\n  dist as d\n)\nWrapper = d.Wrapper",
        "import os, mylib.dist as d\nWrapper = d.Wrapper",
    ],
)
def test_a_file_is_linted_however_its_import_is_laid_out(line: str, newline: str, tmp_path: Path) -> None:
    grow(tmp_path, {"mylib/__init__.py": "", "mylib/dist.py": f"{PUBLIC}Wrapper = FSDP\nother = 1\n"})
    (tmp_path / "train.py").write_bytes(f"import os\n\n{line}\n{BUILD}".replace("\n", newline).encode())
    assert ("train.py", "FSDP507") in found(tmp_path)


def test_a_file_that_has_a_name_in_its_prose_alone_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = '"""Wrapper, which is important."""\nimport dist2, my_dist\nfrom dist.x import y\n'
    grow(tmp_path, {"dist.py": f"{PUBLIC}Wrapper = FSDP\n", "train.py": train})
    asked: list[bytes] = []
    monkeypatch.setattr(View, "written", lambda self, raw: asked.append(raw) or raw)
    found(tmp_path)
    assert asked == []


def test_a_module_of_torch_under_another_name_makes_a_file_worth_linting(tmp_path: Path) -> None:
    grow(tmp_path, {"compat.py": COMPAT, "train.py": f"from compat import collectives\n\n{CHAIN}"})
    assert [path for path, _ in found(tmp_path)] == ["train.py"]


def test_findings_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    dist = f"{PUBLIC}Wrapper = FSDP\nmodel = FSDP(net)\n"
    grow(tmp_path, {"a.py": f"from b import Wrapper\n{BUILD}", "b.py": dist, "c.py": dist})
    assert list(dict.fromkeys(path for path, _ in found(tmp_path))) == ["a.py", "b.py", "c.py"]


def test_a_project_where_nothing_is_passed_on_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, {"a.py": "x = 1\n", "b.py": "y = 2\n"})
    read = filesystem.read
    paths: list[str] = []
    monkeypatch.setattr(filesystem, "read", lambda file: paths.append(file.path) or read(file))
    assert found(tmp_path) == []
    assert len(paths) == 2


def test_a_text_from_stdin_belongs_where_its_name_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(tmp_path, {"dist.py": PUBLIC})
    text = "from dist import FSDP\n\ndef save(m, o):\n    return FSDP.full_optim_state_dict(m, o)\n"
    monkeypatch.chdir(tmp_path)
    arguments = ["lint", "--output-format", "concise", "--stdin-filename", "train.py", "-"]
    result = CliRunner().invoke(cli, arguments, input=text, catch_exceptions=False)
    assert "train.py:4:12" in result.stdout
    assert "FSDP101" in result.stdout


def test_a_pipe_in_the_place_of_a_module_is_passed_over(tmp_path: Path) -> None:
    grow(tmp_path, {"train.py": "from dist import FSDP\n\nx = FSDP.full_optim_state_dict(m, o)\n"})
    os.mkfifo(tmp_path / "dist.py")
    assert codes_of(tmp_path, "train.py") == []


@pytest.mark.parametrize("alone", [False, True])
def test_a_common_word_counts_where_the_project_gives_what_it_belongs_to(alone: bool, tmp_path: Path) -> None:
    giver = "from torch.distributed.fsdp import FullyShardedDataParallel as W, ShardingStrategy as S\n"
    grow(tmp_path, {"lib/__init__.py": "", "lib/kinds.py": giver, "lib/other.py": "S = W = None\n"})
    for name in ("kinds", "other"):
        (tmp_path / f"of_{name}.py").write_text(
            f"from lib.{name} import S, W\n\nmodel = W(net, sharding_strategy=S.NO_SHARD)\n"
        )
    paths = [str(tmp_path / f"of_{name}.py") for name in ("kinds", "other")] if alone else [str(tmp_path)]
    configuration = Configuration(Layer(torch=TorchRange.parse(">=1.12"), hints=True))
    plan = runner.lint(filesystem.discover(paths), configuration)
    found = {(Path(finding.path).name, finding.code) for finding in plan.findings}
    assert ("of_kinds.py", "FSDP506") in found
    assert {name for name, _ in found} == {"of_kinds.py"}
