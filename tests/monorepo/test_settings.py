"""Three packages with their own settings: three torch ranges, a re-export, a facade, a notebook and a baseline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from tests.trees import plant

SAVE = """\
{imports}


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "source": ["# FSDP.full_optim_state_dict(model, optim)"], "metadata": {}},
            {
                "cell_type": "code",
                "source": ["%matplotlib inline\n", "from core import FSDP\n"],
                "metadata": {},
                "outputs": [],
                "execution_count": 7,
            },
            {
                "cell_type": "code",
                "source": ["state = FSDP.full_optim_state_dict(model, optim)  # all of it"],
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            },
        ],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    },
    indent=1,
)
TREE: dict[str, str | bytes] = {
    # core: the range is what it requires; it hands FSDP on, from a module and through the package.
    "core/pyproject.toml": '[project]\nname = "core"\ndependencies = ["torch>=2.4"]\n',
    "core/src/core/__init__.py": 'from .dist import FSDP\n\n__all__ = ["FSDP"]\n',
    "core/src/core/dist.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    "core/src/core/save.py": SAVE.format(imports="from .dist import FSDP"),
    # train: older releases too, as its settings say; generated code is left out.
    "train/pyproject.toml": """\
        [project]
        name = "train"
        dependencies = ["torch>=2.5"]

        [tool.fsdp-migrate]
        torch = ">=1.13"
        exclude = ["gen/"]
        """,
    "train/train/__init__.py": "",
    "train/train/loop.py": SAVE.format(imports="from core import FSDP"),
    "train/gen/model.py": SAVE.format(imports="from core.dist import FSDP"),
    # serve: what was there is known, and only what breaks fails.
    "serve/fsdp-migrate.toml": 'baseline = "known.json"\nfail-on = "breaks"\n',
    "serve/requirements.txt": "torch>=2.2\n",
    "serve/old.py": SAVE.format(imports="from core.dist import FSDP"),
    "serve/new.py": SAVE.format(imports="from core import FSDP as Wrapper\nFSDP = Wrapper"),
    "notebooks/look.ipynb": NOTEBOOK,
}

MIGRATED = """\
{imports}
from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType


def save(model, optim):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        return FSDP.optim_state_dict(model, optim)
"""

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command, in the repository whose baseline was written before `serve/new.py` was."""
    monkeypatch.chdir(tmp_path)
    plant(TREE)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, catch_exceptions=False)

    assert invoke("lint", "--write-baseline", "serve/known.json", "serve/old.py").exit_code == 0
    return invoke


def found(result: Result) -> list[tuple[str, str, str]]:
    findings = json.loads(result.stdout)["findings"]
    return [(finding["path"], finding["code"], finding["applicability"]) for finding in findings]


def test_every_package_is_judged_by_its_own_range_and_settings(run: Run) -> None:
    result = run("lint", "--output-format", "json")
    assert found(result) == [
        ("core/src/core/save.py", "FSDP101", "safe"),
        ("notebooks/look.ipynb", "FSDP101", "safe"),
        ("serve/new.py", "FSDP101", "safe"),
        ("train/train/loop.py", "FSDP101", "manual"),
    ]
    assert json.loads(result.stdout)["torch_ranges"] == {
        "(no project)": ">=2.1",
        "core": ">=2.4",
        "serve": ">=2.2",
        "train": ">=1.13",
    }
    (manual,) = [f for f in json.loads(result.stdout)["findings"] if f["applicability"] == "manual"]
    assert manual["reason"].startswith(
        "the replacement needs torch>=2.1, but train/pyproject.toml:6 states torch>=1.13; `rewrite "
    )


def test_a_run_fails_by_what_each_package_finds_severe(run: Run) -> None:
    assert {folder: run("lint", folder).exit_code for folder in ("core", "notebooks", "serve", "train")} == {
        "core": 1,
        "notebooks": 1,
        "serve": 0,
        "train": 1,
    }
    assert "1 known from serve/known.json" in run("lint").stdout
    assert run("lint").exit_code == 1


def test_a_rewrite_mends_what_each_range_admits_and_a_second_one_nothing(run: Run) -> None:
    result = run("rewrite")
    assert result.exit_code == 1
    assert "Fixed 4 findings in 4 of 8 files; 1 finding left: 1 manual" in result.stdout
    assert Path("core/src/core/save.py").read_text() == MIGRATED.format(imports="from .dist import FSDP")
    assert Path("serve/old.py").read_text() == MIGRATED.format(imports="from core.dist import FSDP")
    for untouched in (
        "train/train/loop.py",
        "train/gen/model.py",
        "core/src/core/dist.py",
        "core/src/core/__init__.py",
    ):
        assert Path(untouched).read_text() == TREE[untouched]
    before = {path: path.read_bytes() for path in Path().rglob("*.*") if path.is_file()}
    assert "Nothing to rewrite in 8 files; 1 finding left" in run("rewrite").stdout
    assert {path: path.read_bytes() for path in before} == before


def test_of_the_notebook_only_the_lines_of_the_cells_change(run: Run) -> None:
    run("rewrite", "notebooks")
    after = Path("notebooks/look.ipynb").read_text()
    removed = [line for line in NOTEBOOK.splitlines() if line not in after.splitlines()]
    assert removed == [
        '    "from core import FSDP\\n"',
        '    "state = FSDP.full_optim_state_dict(model, optim)  # all of it"',
    ]
    code = "".join("".join(cell["source"]) for cell in json.loads(after)["cells"] if cell["cell_type"] == "code")
    assert code.startswith("%matplotlib inline\nfrom core import FSDP\n")
    assert code.endswith("\n    state = FSDP.optim_state_dict(model, optim)  # all of it")


def test_config_tells_for_each_package_where_its_settings_come_from(run: Run) -> None:
    def source(path: str, key: str) -> str:
        return str(json.loads(run("config", path, "--output-format", "json").stdout)["settings"][key]["source"])

    assert source("core", "torch") == "core/pyproject.toml requires torch>=2.4"
    assert source("train", "torch") == "set in train/pyproject.toml"
    assert source("serve/new.py", "fail-on") == "serve/fsdp-migrate.toml"
    assert source("notebooks/look.ipynb", "exclude") == "default"
