from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import fsdp_migrate
from fsdp_migrate.commands.cli import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def readme_command(name: str) -> str:
    script = ROOT / ".ci" / "readme-command"
    return subprocess.run(["bash", str(script), name], check=True, capture_output=True, text=True).stdout


def test_the_first_command_of_the_readme_ends_with_a_diff_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command = readme_command("first").strip().split(" && ")[-1].split()
    assert command[0] == ".venv/bin/fsdp-migrate"
    result = CliRunner().invoke(cli, command[1:])
    assert result.exit_code == 1
    assert "--- a/example/checkpoint.py" in result.stdout
    assert result.stdout.count("\n") < 50  # one screen


def test_the_test_command_of_the_readme_is_the_one_that_ci_runs() -> None:
    assert readme_command("tests").endswith("-m pytest -q -n 2 --dist loadfile\n")
    assert "bash .ci/readme-command tests" in (ROOT / ".ci" / "run").read_text()


def test_every_command_line_in_the_readme_is_understood() -> None:
    lines = re.findall(r"^\$ (fsdp-migrate .*)$", README, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        _, command, *arguments = line.split()
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        options = [argument for argument in arguments if argument.startswith("-")]
        known = {name for option in cli.commands[command].params for name in option.opts}
        assert set(options) <= known


@pytest.mark.parametrize("hook", yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()), ids=lambda h: h["id"])
def test_hooks_call_a_command_on_python_files_and_notebooks(hook: dict[str, object]) -> None:
    program, command, *options = str(hook["entry"]).split()
    assert program == "fsdp-migrate"
    assert command in cli.commands
    assert options == ["--force-exclude"]  # pre-commit names every file
    assert hook["id"] == f"fsdp-migrate-{command}"
    assert hook["types_or"] == ["python", "pyi", "jupyter"]
    assert hook["require_serial"] is True  # else names are followed through a part of the files only


def test_the_wheel_carries_code_fixtures_licence_and_script(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (scripts,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    fixtures = {path.relative_to(ROOT / "fixtures").as_posix() for path in (ROOT / "fixtures").rglob("*.py")}
    carried = {name.removeprefix("fsdp_migrate/_fixtures/") for name in names if name.startswith("fsdp_migrate/_fix")}
    assert carried == fixtures
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fsdp_migrate").rglob("*.py")}
    assert modules <= set(names)
    assert "fsdp_migrate/py.typed" in names
    assert f"fsdp_migrate-{fsdp_migrate.__version__}.dist-info/licenses/LICENSE" in names
    assert "fsdp-migrate = fsdp_migrate.start:main" in scripts


def test_the_changelog_knows_this_version() -> None:
    assert f"\n## {fsdp_migrate.__version__} " in (ROOT / "CHANGELOG.md").read_text()
