"""The torch range of each project as the commands use and tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from tests.trees import plant

Run = Callable[..., Result]

METADATA = '[project]\nname = "x"\ndependencies = ["{}"]\n'

# `FSDP303`: the import breaks where a torch without `flat_param` is supported, that is from 2.2 on, and where a torch
# without `_flat_param` is supported, that is up to 2.1.
OLD_HOME = "from torch.distributed.fsdp.flat_param import FlatParameter\n"
NEW_HOME = "from torch.distributed.fsdp._flat_param import FlatParameter\n"

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)

    return invoke


def flagged(result: Result) -> list[str]:
    return [finding["path"] for finding in json.loads(result.stdout)["findings"]]


def test_every_file_is_judged_by_the_range_of_its_own_project(run: Run) -> None:
    plant(
        {
            "a/pyproject.toml": METADATA.format("torch>=2.4"),
            "a/x.py": NEW_HOME,
            "b/pyproject.toml": METADATA.format("torch>=2.1"),
            "b/x.py": NEW_HOME,
            "c.py": NEW_HOME,
        }
    )
    result = run("lint", "--output-format", "json")
    assert flagged(result) == ["b/x.py", "c.py"]
    document = json.loads(result.stdout)
    assert document["torch"] is None
    assert document["torch_ranges"] == {"(no project)": ">=2.1", "a": ">=2.4", "b": ">=2.1"}


def test_a_range_on_the_command_line_is_that_of_every_file(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": "torch = '>=2.1'\n", "a/x.py": NEW_HOME, "b.py": NEW_HOME})
    result = run("lint", "--output-format", "json", "--torch", ">=2.2")
    assert flagged(result) == []
    document = json.loads(result.stdout)
    assert (document["torch"], document["torch_ranges"]) == (">=2.2", {})


def test_projects_without_a_file_to_look_at_are_not_read(run: Run) -> None:
    plant(
        {"a/pyproject.toml": METADATA.format("torch>=2.4"), "a/x.py": NEW_HOME, "b/setup.cfg": "?", "b/x.py": "x = 1\n"}
    )
    document = json.loads(run("lint", "--output-format", "json").stdout)
    assert (document["torch"], document["torch_ranges"]) == (">=2.4", {"a": ">=2.4"})
    assert document["warnings"] == []


@pytest.mark.parametrize("command", [("lint", "--no-cache"), ("lint", "--cache-dir", "cache"), ("rewrite",)])
def test_projects_that_are_only_searched_for_names_of_others_are_not_named(command: tuple[str, ...], run: Run) -> None:
    plant(
        {
            "a/pyproject.toml": METADATA.format("torch>=2.4"),
            "a/dist.py": f"{LEGACY}\nWrapper = FSDP\n",
            "b/pyproject.toml": METADATA.format("torch>=1.8"),
            "b/x.py": "from dist import Wrapper\nfrom names import *\n",
        }
    )
    for _ in range(2):
        document = json.loads(run(*command, "--output-format", "json").stdout)
        assert document["torch_ranges"] == {"a": ">=2.4"}
        assert document["notes"] == document["warnings"] == []


def test_rewrite_uses_the_range_of_the_project_too(run: Run) -> None:
    plant({"a/fsdp-migrate.toml": 'torch = ">=1.12"\n', "a/x.py": LEGACY, "b/x.py": LEGACY})
    left = run("rewrite", "-q").stdout
    assert left.startswith("a/x.py:5:12: FSDP101 ")
    assert "a/fsdp-migrate.toml:1 states torch>=1.12" in left
    assert Path("a/x.py").read_text() == LEGACY
    assert "FSDP.optim_state_dict(model, optim)" in Path("b/x.py").read_text()


def test_stdin_has_the_project_of_its_file_name(run: Run) -> None:
    plant({"a/pyproject.toml": METADATA.format("torch>=2.4"), "b/x.py": ""})
    assert run("lint", "--stdin-filename", "a/new.py", "-", stdin=NEW_HOME).exit_code == 0
    assert run("lint", "--stdin-filename", "b/new.py", "-", stdin=NEW_HOME).exit_code == 1


def test_a_note_closes_the_summary_unless_quiet(run: Run) -> None:
    plant({"pyproject.toml": METADATA.format("torch>=1.6"), "x.py": OLD_HOME, "y.py": OLD_HOME})
    note = "pyproject.toml supports torch>=1.6; pass --torch '>=1.6' to check those releases, too"
    result = run("lint")
    assert result.stdout.splitlines()[-1] == f"{note}."
    assert result.stdout.count(note) == 1
    assert note not in run("lint", "-q").stdout
    assert run("rewrite", "--diff").stderr.splitlines()[-1] == f"{note}."
    assert run("rewrite").stdout.splitlines()[-1] == f"{note}."
    assert json.loads(run("lint", "--output-format", "json").stdout)["notes"] == [note]


def test_many_notes_are_cut_short(run: Run) -> None:
    for name in "abcde":
        plant({f"{name}/requirements.txt": "torch>=1.6\n", f"{name}/x.py": OLD_HOME})
    notes = [line for line in run("lint").stdout.splitlines() if "1.6" in line or "--show-torch-range" in line]
    assert [note.split()[0] for note in notes] == [
        "a/requirements.txt",
        "b/requirements.txt",
        "c/requirements.txt",
        "2",
    ]
    assert notes[-1] == "2 projects more have the same reason; --show-torch-range lists them."


def test_a_warning_names_the_file_and_the_default_holds(run: Run) -> None:
    plant({"setup.cfg": "[options]\ninstall_requires = torch>>2\n", "x.py": NEW_HOME})
    result = run("lint")
    assert result.exit_code == 1
    assert result.stderr == "warning: setup.cfg: the requirement 'torch>>2' cannot be parsed, and is ignored\n"
    assert run("lint", "-q").stderr == ""


@pytest.mark.parametrize(
    "command", [("lint",), ("rewrite",), ("lint", "--show-torch-range"), ("lint", "a/x.py"), ("config", "a")]
)
def test_a_setting_that_cannot_be_used_ends_the_run_before_anything_is_done(run: Run, command: tuple[str, ...]) -> None:
    plant({"a/fsdp-migrate.toml": "torch = 'banana'\n", "a/x.py": LEGACY, "Z.py": LEGACY})
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: a/fsdp-migrate.toml: torch: not a torch version range: 'banana'; "
        "write it like '>=2.1' or '>=2.1,<2.16'\n"
    )
    assert Path("Z.py").read_text() == LEGACY


def test_show_torch_range_tells_every_project_of_the_paths_and_checks_nothing(run: Run) -> None:
    plant(
        {
            "pyproject.toml": METADATA.format("torch>=1.13"),
            "x.py": OLD_HOME,
            "a/setup.cfg": "[options]\ninstall_requires = torch>=2.4,<3\n",
            "a/x.py": "",
            "b/fsdp-migrate.toml": 'torch = ">=2.2,<2.6"\n',
            "b/x.py": "",
            "c/requirements.txt": "torch==2.0.1\ntorch>>1\n",
            "c/x.py": "",
        }
    )
    for command in ("lint", "rewrite"):
        result = run(command, "--show-torch-range")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            ".: torch>=2.1 (default; pyproject.toml supports torch>=1.13; "
            "pass --torch '>=1.13' to check those releases, too)",
            "a: torch>=2.4 (a/setup.cfg requires torch>=2.4)",
            "b: torch>=2.2,<2.6 (set in b/fsdp-migrate.toml)",
            "c: torch>=2.1 (default; 'torch==2.0.1' in c/requirements.txt gives no lower bound)",
        ]
        assert (
            result.stderr
            == "warning: c/requirements.txt: the requirement 'torch>>1' cannot be parsed, and is ignored\n"
        )
    assert Path("x.py").read_text() == OLD_HOME
    assert run("lint", "--show-torch-range", "a").stdout == "a: torch>=2.4 (a/setup.cfg requires torch>=2.4)\n"


def test_show_torch_range_with_a_range_given(run: Run) -> None:
    plant({"pyproject.toml": METADATA.format("torch>=2.4"), "x.py": ""})
    assert run("lint", "--show-torch-range", "--torch", "2.2").stdout == "all files: torch>=2.2\n"


def test_show_torch_range_as_json(run: Run) -> None:
    plant({"pyproject.toml": METADATA.format("torch>=2.4"), "x.py": OLD_HOME})
    document = json.loads(run("lint", "--show-torch-range", "--output-format", "json").stdout)
    assert (document["torch"], document["torch_ranges"]) == (">=2.4", {".": ">=2.4"})
    assert document["torch_sources"] == {".": "pyproject.toml requires torch>=2.4"}
    assert "findings" not in document
