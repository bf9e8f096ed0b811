"""Configuration as the commands use and tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.workspace.settings.table import BY_KEY
from fsdp_migrate.workspace.toml import tomllib
from tests.trees import plant

Run = Callable[..., Result]

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""
# Unsafe to fix: the other ranks get nothing.
UNSAFE = """\
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def save(model, optim):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        return FSDP.optim_state_dict(model, optim)
"""


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)

    return invoke


def found(result: Result) -> list[tuple[str, str, str]]:
    findings = json.loads(result.stdout)["findings"]
    return [(finding["path"], finding["code"], finding["applicability"]) for finding in findings]


def test_every_file_is_checked_by_the_rules_of_its_own_project(run: Run) -> None:
    plant(
        {
            "a/pyproject.toml": "[tool.fsdp-migrate]\nselect = ['FSDP3']\n",
            "a/x.py": LEGACY,
            "b/fsdp-migrate.toml": "per-file-ignores = { 'old_*.py' = ['FSDP'] }\n",
            "b/old_x.py": LEGACY,
            "b/x.py": LEGACY,
            "c/x.py": LEGACY,
        }
    )
    assert found(run("lint", "--output-format", "json")) == [
        ("b/x.py", "FSDP101", "safe"),
        ("c/x.py", "FSDP101", "safe"),
    ]
    assert [path for path, *_ in found(run("lint", "--output-format", "json", "--select", "FSDP1"))] == [
        "a/x.py",
        "b/x.py",
        "c/x.py",
    ]
    assert len(found(run("lint", "--output-format", "json", "--isolated"))) == 4


@pytest.mark.parametrize(
    ("fixes", "text", "grade", "reason"),
    [
        ("FSDP101 = 'manual'", LEGACY, "manual", "the settings grade the fixes of this rule as manual"),
        ("full-optim-state-dict = 'unsafe'", LEGACY, "unsafe", "the settings grade the fixes of this rule as unsafe"),
        ("FSDP201 = 'safe'", UNSAFE, "safe", None),
    ],
)
def test_a_rule_is_graded_anew(run: Run, fixes: str, text: str, grade: str, reason: str | None) -> None:
    plant({"fsdp-migrate.toml": f"fixes = {{ {fixes} }}\n", "x.py": text})
    (finding,) = json.loads(run("lint", "--output-format", "json").stdout)["findings"]
    assert (finding["applicability"], finding["reason"]) == (grade, reason)
    run("rewrite")
    assert (Path("x.py").read_text() != text) is (grade == "safe")
    run("rewrite", "--unsafe-fixes")
    assert (Path("x.py").read_text() != text) is (grade != "manual")


def test_what_has_no_fix_is_not_made_safe(run: Run) -> None:
    lost = LEGACY.replace("full_optim_state_dict(model, optim)", "scatter_full_optim_state_dict(None, model)")
    plant({"fsdp-migrate.toml": "fixes = { FSDP = 'safe' }\n", "y.py": lost})
    assert {grade for _, _, grade in found(run("lint", "--output-format", "json"))} == {"manual"}
    run("rewrite")
    assert Path("y.py").read_text() == lost


def test_unsafe_fixes_and_hints_of_a_file_can_be_turned_off(run: Run) -> None:
    plant({"fsdp-migrate.toml": "unsafe-fixes = true\nhints = true\n", "x.py": UNSAFE})
    assert [code for _, code, _ in found(run("lint", "--output-format", "json"))] == ["FSDP201", "FSDP210"]
    assert [code for _, code, _ in found(run("lint", "--output-format", "json", "--no-hints"))] == ["FSDP201"]
    run("rewrite", "--no-unsafe-fixes")
    assert Path("x.py").read_text() == UNSAFE
    run("rewrite")
    assert Path("x.py").read_text() != UNSAFE


def test_the_advice_counts_the_unsafe_fixes_that_a_file_agrees_to(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": "unsafe-fixes = true\n", "a/x.py": UNSAFE, "b/x.py": UNSAFE})
    assert run("lint").stdout.splitlines()[-1] == (
        "`fsdp-migrate rewrite` fixes 1, with --unsafe-fixes 1 more; add --diff for a preview."
    )
    assert run("rewrite").stdout.splitlines()[-2].startswith("Fixed 1 finding in 1 of 2 files; 1 finding left")


def test_a_finding_fails_the_run_by_the_setting_of_its_own_file(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": "fail-on = 'breaks'\n", "a/x.py": LEGACY, "b/x.py": LEGACY})
    assert run("lint", "a").exit_code == 0
    assert run("lint", "b").exit_code == 1
    assert run("lint").exit_code == 1
    assert run("lint", "--fail-on", "breaks").exit_code == 0
    assert run("lint", "--fail-on", "deprecated", "a").exit_code == 1


def test_a_fail_on_of_hint_brings_the_hints_of_its_files(run: Run) -> None:
    hint = UNSAFE.replace("config)", "config, config)")
    plant({"a/fsdp-migrate.toml": "fail-on = 'hint'\n", "a/x.py": hint, "b/x.py": hint})
    shown = [path for path, code, _ in found(run("lint", "--output-format", "json")) if code == "FSDP210"]
    assert shown == ["a/x.py"]


def test_stdin_has_the_configuration_of_its_file_name(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": "select = ['FSDP3']\nexclude = ['gen/']\n"})
    assert run("lint", "--stdin-filename", "a/new.py", "-", stdin=LEGACY).exit_code == 0
    assert run("lint", "--stdin-filename", "new.py", "-", stdin=LEGACY).exit_code == 1


def test_text_of_an_excluded_file_name_comes_out_as_it_was(run: Run) -> None:
    plant({"fsdp-migrate.toml": "exclude = ['gen/']\n"})
    piped = ("rewrite", "--stdin-filename", "gen/x.py", "-")
    assert run(*piped, stdin=LEGACY).stdout != LEGACY
    result = run(*piped, "--force-exclude", stdin=LEGACY)
    assert (result.exit_code, result.stdout) == (0, LEGACY)


def test_a_named_configuration_file_counts_for_all(run: Run) -> None:
    plant({"ci/strict.toml": "select = ['FSDP3']\n", "a/fsdp-migrate.toml": "", "a/x.py": LEGACY})
    assert run("lint", "--config", "ci/strict.toml").exit_code == 0
    assert run("lint", "--config", "ci/strict.toml", "--isolated").exit_code == 2
    assert run("lint", "--config", "ci/none.toml").exit_code == 2


# --- fsdp-migrate config ---------------------------------------------------------------------------------------------


def test_config_prints_every_setting_as_toml_with_its_source(run: Run) -> None:
    plant(
        {
            "pyproject.toml": """\
                [project]
                name = "x"
                dependencies = ["torch>=2.4"]
                [tool.fsdp-migrate]
                fail-on = "breaks"
                exclude = ["gen/", "\\"quoted\\""]
                [tool.fsdp-migrate.per-file-ignores]
                "tests/" = ["FSDP1"]
            """,
            "src/x.py": "",
        }
    )
    result = run("config", "src/x.py")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line for line in lines if "default" not in line] == [
        'torch = ">=2.4"  # pyproject.toml requires torch>=2.4',
        'per-file-ignores = { "tests/" = ["FSDP1"] }  # pyproject.toml',
        'fail-on = "breaks"  # pyproject.toml',
        'exclude = ["gen/", "\\"quoted\\""]  # pyproject.toml',
    ]
    assert "select = []  # default: all rules" in lines
    assert lines[-1] == "# baseline is not set (default: every finding counts)"
    read = tomllib.loads(result.stdout)
    assert set(read) == set(BY_KEY) - {"baseline", "target"}
    assert read["exclude"] == ["gen/", '"quoted"']


def test_config_prints_json(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": "torch = '2.3'\nbaseline = 'known.json'\n"})
    document = json.loads(run("config", "a", "--output-format", "json").stdout)
    assert (document["schema_version"], document["path"]) == (1, "a")
    assert list(document["settings"]) == list(BY_KEY)
    assert document["settings"]["torch"] == {"value": ">=2.3", "source": "set in a/fsdp-migrate.toml"}
    assert document["settings"]["baseline"] == {"value": "known.json", "source": "a/fsdp-migrate.toml"}
    assert document["settings"]["hints"] == {"value": False, "source": "default"}


def test_config_says_that_a_path_is_left_out(run: Run) -> None:
    plant({"fsdp-migrate.toml": "exclude = ['gen/']\n", "gen/x.py": "", "x.py": ""})
    assert run("config", "gen/x.py").stdout.splitlines()[0] == ("# gen/x.py is skipped in folders (exclude)")
    assert run("config", "x.py").stdout.startswith("torch = ")
    assert json.loads(run("config", "gen", "--output-format", "json").stdout)["excluded"] is True
    assert json.loads(run("config", "x.py", "--output-format", "json").stdout)["excluded"] is False


def test_config_prints_the_schema(run: Run) -> None:
    assert json.loads(run("config", "--schema").stdout)["properties"].keys() == BY_KEY.keys()


def test_a_table_that_does_not_count_is_warned_of(run: Run) -> None:
    plant({"pyproject.toml": "[tool.fsdp_migrate]\nselect = ['FSDP3']\n", "x.py": LEGACY})
    warning = "pyproject.toml: [tool.fsdp_migrate] is not read, only [tool.fsdp-migrate] is: rename the table"
    for command in (["lint", "--torch", ">=2.1"], ["rewrite", "--diff"], ["config"]):
        assert run(*command).stderr.splitlines()[0] == f"warning: {warning}"
    assert json.loads(run("lint", "--output-format", "json").stdout)["warnings"] == [warning]
    assert run("lint", "-q").stderr == ""
