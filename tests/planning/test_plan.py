"""What there is to do, asked from Python: nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fsdp_migrate
from fsdp_migrate import runner
from fsdp_migrate.findings import Applicability
from fsdp_migrate.report import sarif
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.workspace import Workspace
from tests.planning.renaming import Renaming, configuration
from tests.planning.test_across import LEGACY, TREE, grow, tree


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plan_has_findings_transactions_and_new_texts() -> None:
    grow({"a.py": LEGACY, "b.py": "x = 1\n"})
    plan = fsdp_migrate.plan(".", ">=2.1")
    assert [(finding.path, finding.line, finding.code) for finding in plan.fixed] == [("a.py", 3, "FSDP101")]
    assert [(one.rule, one.grade, list(one.fixes)) for one in plan.transactions] == [
        ("FSDP101", Applicability.SAFE, ["a.py"])
    ]
    (change,) = plan.changes
    assert (change.path, change.before) == ("a.py", LEGACY.encode())
    assert b"FSDP.optim_state_dict(m, o)" in change.after
    assert (plan.findings, plan.failures, plan.files_checked) == ((), (), 2)
    assert tree() == {"a.py": LEGACY, "b.py": "x = 1\n"}


def test_what_an_editor_has_not_saved_counts_for_its_file_and_for_those_that_import_it() -> None:
    grow({"lib.py": "x = 1\n", "a.py": "from lib import Wrapped\n\nWrapped.full_optim_state_dict(m, o)\n"})
    assert fsdp_migrate.plan().changes == ()
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped\n"
    plan = fsdp_migrate.plan([Path("a.py"), "lib.py"], overlay={Path("lib.py").absolute(): text})
    assert [finding.path for finding in plan.fixed] == ["a.py"]
    assert Path("lib.py").read_text() == "x = 1\n"


def test_settings_and_arguments_hold_as_on_the_command_line() -> None:
    grow({"a.py": LEGACY, "fsdp-migrate.toml": 'ignore = ["FSDP101"]\n'})
    assert fsdp_migrate.plan().fixed == ()
    assert fsdp_migrate.plan(select=["full-optim-state-dict"]).fixed != ()
    with pytest.raises(ValueError, match="no rule"):
        fsdp_migrate.plan(select=["FSDQ"])


def test_a_target_is_planned_without_a_change_on_disk() -> None:
    grow(TREE)
    plan = fsdp_migrate.plan(target=Renaming({"old": "new"}))
    assert [change.path for change in plan.changes] == ["a.py", "b/c.py", "d.py"]
    (transaction,) = plan.transactions
    assert sorted(transaction.fixes) == ["a.py", "b/c.py", "d.py"]
    assert (transaction.reason, tree()) == ("`old` is old", TREE)


def test_sarif_has_the_edits_of_all_files() -> None:
    grow(TREE)
    plan = runner.lint(filesystem.discover(["."]), configuration(), target=Renaming({"old": "new"}))
    (result,) = json.loads(sarif.report(plan))["runs"][0]["results"]
    (fix,) = result["fixes"]
    assert [change["artifactLocation"]["uri"] for change in fix["artifactChanges"]] == ["a.py", "b/c.py", "d.py"]
    texts = [change["replacements"][0]["insertedContent"]["text"] for change in fix["artifactChanges"]]
    assert texts == ["new", "new", "new"]


def test_lint_says_what_rewrite_would_refuse() -> None:
    grow({"a.py": "import torch\nimport torch.distributed.fsdp\n\npass\n"})
    plan = runner.lint(filesystem.discover(["."]), configuration(), target=Renaming({"pass": "torch.load('x')"}))
    assert [(finding.code, finding.applicability) for finding in plan.findings] == [("FSDP990", Applicability.MANUAL)]


def test_a_patched_workspace_leaves_the_other_as_it_was() -> None:
    grow(TREE)
    workspace = Workspace(filesystem.discover(["."]))
    file = workspace.files[0]
    patched = workspace.patched({file: b"new\n"})
    assert (patched.read(file), workspace.read(file)) == (b"new\n", TREE["a.py"].encode())
    assert patched.modules.texts.raw(str(Path("a.py").absolute())) == b"new\n"
    Path("a.py").write_text("written\n")
    assert (patched.read(file), workspace.read(file)) == (b"new\n", b"written\n")
