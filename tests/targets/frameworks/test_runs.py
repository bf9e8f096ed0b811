from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli

YAML = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
SWITCHED = (
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: true\n  fsdp_version: 2\n"
    "  fsdp_state_dict_type: FULL_STATE_DICT\n"
)
SCRIPT = "python -m torch.distributed.launch --use_env t.py\n"
TARGET = ("--target", "fsdp2", "--torch", ">=2.6", "--no-cache")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("conf", ".venv", "ignored"):
        (tmp_path / name).mkdir()
    files = {
        "conf/a.yaml": YAML,
        "conf/other.yml": "a: [\n",
        "conf/template.yml": "{% if x %}\nfsdp_config: 1\n",
        ".venv/a.yaml": YAML,
        "ignored/a.yaml": YAML,
        ".gitignore": "ignored/\n",
        "run.sh": SCRIPT,
        "m.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, newline="")
    (tmp_path / ".git").mkdir()
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def places(result: Result) -> list[tuple[str, str]]:
    return [(finding["path"], finding["code"]) for finding in json.loads(result.stdout)["findings"]]


def test_a_folder_is_searched_for_yaml_and_what_cannot_be_read_is_told_and_no_failure(project: Path) -> None:
    result = run("lint", *TARGET, "--output-format", "json", ".")
    document = json.loads(result.stdout)
    assert places(result) == [("conf/a.yaml", "FSDP851")]
    assert document["files_checked"] == 2
    assert [warning.partition(" is")[0] for warning in document["warnings"]] == ["conf/template.yml"]
    assert run("lint", "--no-cache", ".").exit_code == 0
    hinted = run("lint", "--no-cache", "--hints", "--output-format", "json", "conf/template.yml")
    assert places(hinted) == [("conf/template.yml", "FSDP859")]


def test_scripts_are_checked_if_they_are_named_or_the_settings_say_so(project: Path) -> None:
    assert places(run("lint", "--no-cache", "--output-format", "json", ".")) == []
    assert places(run("lint", "--no-cache", "--output-format", "json", "run.sh")) == [("run.sh", "FSDP822")]
    (project / "fsdp-migrate.toml").write_text("scripts = true\n")
    assert places(run("lint", "--no-cache", "--output-format", "json", ".")) == [("run.sh", "FSDP822")]


def test_yaml_and_scripts_are_rewritten_once(project: Path) -> None:
    arguments = ("rewrite", *TARGET, "--unsafe-fixes", ".", "run.sh")
    assert run(*arguments).exit_code == 0
    assert (project / "conf/a.yaml").read_text() == SWITCHED
    assert (project / "run.sh").read_text() == "torchrun t.py\n"
    assert "Nothing to rewrite" in run(*arguments).stdout
    assert (project / "ignored/a.yaml").read_text() == YAML


def test_nothing_is_rewritten_without_being_asked_for(project: Path) -> None:
    run("rewrite", *TARGET, ".", "run.sh")
    assert ((project / "conf/a.yaml").read_text(), (project / "run.sh").read_text()) == (YAML, SCRIPT)


def test_selection_baselines_and_all_formats_take_yaml(project: Path) -> None:
    assert places(run("lint", *TARGET, "--select", "FSDP822", "--output-format", "json", ".")) == []
    for form in ("sarif", "github", "gitlab", "junit"):
        assert "FSDP851" in run("lint", *TARGET, "--output-format", form, ".").stdout
    run("lint", *TARGET, "--write-baseline", "known.json", ".")
    known = run("lint", *TARGET, "--baseline", "known.json", ".")
    assert known.exit_code == 0
    assert "1 known" in known.stdout
    (project / "conf/a.yaml").write_text(f"# moved\n\n{YAML}")
    assert run("lint", *TARGET, "--baseline", "known.json", ".").exit_code == 0


def test_a_diff_has_only_the_lines_of_the_keys(project: Path) -> None:
    diff = run("rewrite", *TARGET, "--unsafe-fixes", "--diff", "conf").stdout
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed[0] == "-  fsdp_sharding_strategy: FULL_SHARD"
    assert len(changed) == 4


def test_text_from_stdin_is_yaml_by_its_name(project: Path) -> None:
    arguments = ("lint", *TARGET, "--stdin-filename", "x.yaml", "--output-format", "json", "-")
    assert places(CliRunner().invoke(cli, list(arguments), input=YAML)) == [("x.yaml", "FSDP851")]
