"""Names that go through three packages, linted and rewritten from end to end."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli

PROJECTS = Path(__file__).parent / "projects"
SAVING = "trainer/trainer/saving.py"
LOADING = "trainer/trainer/loading.py"
EXPORT = "serving/src/serving/export.py"
DIST = "core/src/core/dist.py"


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(PROJECTS, tmp_path / "repository")
    (root / ".git").mkdir()
    monkeypatch.chdir(root)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout


def findings(*arguments: str) -> dict[str, list[dict[str, str]]]:
    """What lint finds, by file."""
    _, text = run("lint", "--output-format", "json", *arguments)
    report = json.loads(text)
    assert not report.get("failures")
    found = defaultdict(list)
    for finding in report["findings"]:
        found[finding["path"]].append(finding)
    return dict(found)


def codes(found: dict[str, list[dict[str, str]]]) -> dict[str, list[str]]:
    return {path: sorted(finding["code"] for finding in those) for path, those in found.items()}


def test_each_package_has_its_own_torch_range() -> None:
    _, text = run("lint", "--show-torch-range")
    for package, torch in (("core", ">=2.1"), ("trainer", ">=2.2"), ("serving", ">=1.13")):
        (line,) = (line for line in text.splitlines() if line.startswith(package))
        assert torch in line


def test_lint_follows_fsdp_through_the_packages() -> None:
    assert codes(findings()) == {
        DIST: ["FSDP301"],
        EXPORT: ["FSDP101", "FSDP301"],
        LOADING: ["FSDP104"],
        SAVING: ["FSDP101", "FSDP102"],
    }


def test_a_package_is_judged_for_its_own_range() -> None:
    found = findings()
    (legacy,) = (finding for finding in found[EXPORT] if finding["code"] == "FSDP101")
    assert "the replacement needs torch>=2.1, but serving/pyproject.toml:3 states torch>=1.13" in legacy["reason"]


def test_a_helper_without_the_optimizer_is_told_to_take_it() -> None:
    (finding,) = findings()[LOADING]
    assert "add a parameter for it and pass it as `optim=`" in finding["reason"]


def test_a_comment_that_names_the_old_method_is_a_hint() -> None:
    hints = [finding for finding in findings("--hints")[SAVING] if "comment" in finding["message"]]
    assert [(hint["code"], hint["severity"]) for hint in hints] == [("FSDP101", "hint")]


def test_rewriting_imports_from_torch_what_the_facade_does_not_have() -> None:
    run("rewrite")
    text = Path(SAVING).read_text()
    assert text.startswith(
        "import torch\n"
        "import torch.distributed as dist\n"
        "\n"
        "from core import FSDP, HAS_OPTIM_STATE_DICT, Tracked\n"
        "from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType\n"
    )
    assert "with FSDP.state_dict_type(\n" in text
    assert text.count("FSDP.full_optim_state_dict(") == 1  # in the arm that no supported torch runs


@pytest.mark.parametrize("paths", [[], ["core"], [DIST]])
def test_rewriting_keeps_what_another_package_imports(paths: list[str]) -> None:
    run("rewrite", *paths)
    assert "import FlatParameter, FullyShardedDataParallel as FSDP" in Path(DIST).read_text()
    assert run("rewrite", "--check", "core")[0] == 0


def test_what_is_left_is_told_and_a_second_run_changes_nothing() -> None:
    run("rewrite")
    before = {path: path.read_bytes() for path in Path().rglob("*.py")}
    code, text = run("rewrite", "--output-format", "json")
    assert code == 1
    assert {(f["path"], f["code"]) for f in json.loads(text)["findings"]} >= {(LOADING, "FSDP104"), (EXPORT, "FSDP101")}
    assert {path: path.read_bytes() for path in Path().rglob("*.py")} == before
