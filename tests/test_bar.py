"""What the best tools of this kind do, item by item, as a user sees it from the command line.

Item 8 (edits that lose nothing) has `tests/rewrite`, `tests/torture` and `tests/fuzz`, item 12 (a check at run time)
`tests/verify`. Item 11, the YAML files of accelerate, has no test: their keys are not those of torch, and what becomes
of them is decided by a migration to FSDP2, which this version does not do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.rules import RULES
from tests.trees import plant

Run = Callable[..., Result]

SAVE = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSDP_MIGRATE_CACHE_DIR", str(tmp_path / "cache"))
    return lambda *arguments: CliRunner().invoke(cli, arguments, catch_exceptions=False)


def findings(result: Result) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(result.stdout)["findings"]
    return found


def test_bar_1_one_card_is_the_explanation_the_documentation_and_the_sarif_help(run: Run) -> None:
    plant({"train.py": SAVE})
    card = next(rule.card for rule in RULES if rule.card.code == "FSDP101")
    sarif = json.loads(run("lint", "--output-format", "sarif", ".").stdout)
    (rule,) = sarif["runs"][0]["tool"]["driver"]["rules"]
    documentation = (Path(__file__).parent.parent / "docs" / "rules.md").read_text()
    explained = run("explain", "FSDP101").stdout
    first = card.explanation.split(".")[0].split()
    for text in (rule["help"]["markdown"], documentation, explained):
        assert " ".join(first) in " ".join(text.split())
    assert "torch 2.0" in explained


def test_bar_2_a_fix_is_safe_unsafe_or_manual_and_a_setting_regrades_it(run: Run) -> None:
    plant({"train.py": SAVE, "fsdp-migrate.toml": "fixes = { FSDP101 = 'manual' }\n"})
    (regraded,) = findings(run("lint", "--output-format", "json", "."))
    (plain,) = findings(run("lint", "--isolated", "--output-format", "json", "."))
    assert (plain["applicability"], regraded["applicability"]) == ("safe", "manual")


def test_bar_2_an_edit_that_would_lose_a_comment_is_not_made(run: Run) -> None:
    commented = SAVE.replace(
        "(model, optim)\n", "(\n        model,\n        optim,\n        rank0_only=True,  # all\n    )\n"
    )
    plant({"train.py": commented})
    run("rewrite", ".")
    assert "# all" in Path("train.py").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = ['torch>=2.4']\n"),
        ("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\n[dependency-groups]\ngpu = ['torch>=2.4']\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch>=2.4\n"),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['torch>=2.4'])\n"),
        ("requirements.txt", "torch>=2.4\n"),
    ],
    ids=["project", "dependency-group", "setup.cfg", "setup.py", "requirements"],
)
def test_bar_3_the_range_of_torch_comes_from_the_project_and_its_file_is_named(run: Run, name: str, text: str) -> None:
    plant({"train.py": SAVE, name: text})
    assert run("lint", "--show-torch-range", ".").stdout == f".: torch>=2.4 ({name} requires torch>=2.4)\n"


def test_bar_4_a_fix_runs_on_the_old_and_the_new_torch_where_both_are_supported(run: Run) -> None:
    text = "import torch.distributed as dist\n\n{}\n\nscaler = GradScaler()\n"
    plant({"train.py": text.format("from torch.cuda.amp import GradScaler")})
    run("rewrite", "--torch", ">=2.1", ".")
    either = (
        "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler"
    )
    assert Path("train.py").read_text() == text.format(either)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["lint", "clean.py"], 0),
        (["lint", "train.py"], 1),
        (["lint", "--select", "FSDP9999", "train.py"], 2),
        (["lint", "train.py", "broken.py"], 3),
        (["rewrite", "clean.py"], 0),
        (["rewrite", "--check", "train.py"], 1),
        (["rewrite", "--select", "FSDP9999", "train.py"], 2),
        (["rewrite", "train.py", "broken.py"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bar_5_exit_codes_mean_the_same_for_both_commands(run: Run, arguments: list[str], code: int) -> None:
    plant(
        {
            "clean.py": "x = 1\n",
            "train.py": SAVE,
            "broken.py": "import torch.distributed.fsdp\nFullyShardedDataParallel(:\n",
        }
    )
    assert run(*arguments).exit_code == code


def test_bar_6_a_baseline_is_keyed_by_content_and_outlives_moved_lines(run: Run) -> None:
    plant({"train.py": SAVE})
    run("lint", "--write-baseline", "known.json", ".")
    Path("train.py").write_text("# moved\n\n\n" + SAVE)
    assert run("lint", "--baseline", "known.json", ".").exit_code == 0
    Path("more.py").write_text(SAVE)
    assert run("lint", "--baseline", "known.json", ".").exit_code == 1


def test_bar_7_what_a_rewrite_leaves_is_told(run: Run) -> None:
    plant(
        {
            "train.py": SAVE
            + "\ndef other(model, optim):\n    return getattr(FSDP, 'full_optim_state_dict')(model, optim)\n"
        }
    )
    result = run("rewrite", ".")
    assert result.exit_code == 1
    assert "FSDP101" in result.stdout.splitlines()[-2]
    assert ", manual: " in result.stdout


def test_bar_9_an_import_in_a_guard_stays_there_and_an_exported_name_stays(run: Run) -> None:
    imported, newline, function = SAVE.partition("\n")
    plant({"train.py": f"try:\n    {imported}\nexcept ImportError:\n    FSDP = None\n{newline}{function}"})
    run("rewrite", ".")
    written = Path("train.py").read_text()
    assert written.startswith("try:\n    from torch.distributed.fsdp import (\n        FullOptimStateDictConfig,\n")
    assert written.count("import ") == 1


def test_bar_10_outside_the_changed_cell_every_byte_of_a_notebook_stays(run: Run) -> None:
    cell = json.dumps(SAVE)
    text = (
        '{"cells":[ {"cell_type" : "code","source": %s,"metadata":{},"outputs":[],"execution_count":null} ],\n'
        '\t"metadata":{"x":"\\u00e9\\/"},"nbformat":4, "nbformat_minor":5}'
    )
    plant({"train.ipynb": text % cell})
    run("rewrite", ".")
    before, _, after = (text % cell).partition(cell)
    written = Path("train.ipynb").read_text()
    assert written.startswith(before)
    assert written.endswith(after)
    assert "optim_state_dict_config=" in written
