"""What a start loads: `lint FILE` runs on every commit, and most of its time is importing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.test_process import ENVIRONMENT

OWN = {
    "fsdp_migrate",
    *(
        f"fsdp_migrate.{name}"
        for name in """
        _version commands commands.cli commands.effort commands.lint commands.options findings lint planning
        patterns planning.planner planning.parts records report report.output report.plain report.text rules
        rules.entry rules.index runner runner.gathering screen source torch_api workspace workspace.disk
        workspace.filesystem workspace.gitignore workspace.project_files workspace.reading workspace.settings
        workspace.settings.configuration workspace.settings.nearest workspace.settings.settings workspace.workspace
        """.split()
    ),
}
# Beside what click loads anyway.
STANDARD = {"bisect", "gc"}


def loaded_beyond_click(program: str) -> tuple[set[str], set[str]]:
    """The modules of this package, and the public ones of others, that `program` loads and click does not."""
    shown = "print(*set(sys.modules) - before, file=sys.stderr)"
    code = f"import sys, click\nbefore = set(sys.modules)\n{program}\n{shown}"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    loaded = {name for name in result.stderr.split() if not name.startswith("_")}
    own = {name for name in loaded if name.partition(".")[0] == "fsdp_migrate"}
    # What click itself loads only once it runs is not ours to count.
    return own, {name for name in loaded - own if name.partition(".")[0] not in ("click", "locale", "encodings")}


def test_the_command_line_loads_no_command() -> None:
    own, others = loaded_beyond_click("import fsdp_migrate.commands.cli")
    assert own == {"fsdp_migrate", *(f"fsdp_migrate.{name}" for name in ("_version", "commands", "commands.cli"))}
    assert not others


def test_a_configuration_is_read_without_what_only_a_closer_look_needs(tmp_path: Path) -> None:
    (tmp_path / "fsdp-migrate.toml").write_text(
        "select = ['FSDP1']\nexclude = ['gen/']\nfixes = { FSDP1 = 'manual' }\n"
        "per-file-ignores = { 'tests/' = ['FSDP'] }\n"
    )
    (tmp_path / "a.py").write_text("x = 1\n")
    program = (
        f"from fsdp_migrate.commands.cli import cli\ncli(['lint', {str(tmp_path / 'a.py')!r}], standalone_mode=False)"
    )
    own, others = loaded_beyond_click(program)
    assert "fsdp_migrate.workspace.settings.table" in own
    assert {name.partition(".")[0] for name in others} <= {*STANDARD, "string", "tomli", "tomllib"}


def test_linting_a_file_with_nothing_to_report_loads_only_these_modules(tmp_path: Path) -> None:
    clean = tmp_path / "a.py"
    clean.write_text("import torch\n\nx = torch.ones(3)\n")
    program = f"from fsdp_migrate.commands.cli import cli\ncli(['lint', {str(clean)!r}], standalone_mode=False)"
    own, others = loaded_beyond_click(program)
    assert own == OWN
    assert others <= STANDARD


def test_linting_a_short_file_with_fsdp_loads_what_its_words_ask_for(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "def gathered(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
    )
    program = (
        f"from fsdp_migrate.commands.cli import cli\ncli(['lint', '--no-cache', {str(file)!r}], standalone_mode=False)"
    )
    own, others = loaded_beyond_click(program)
    assert {name.partition(".")[0] for name in others} <= {*STANDARD, "json", "packaging", "zlib"}
    assert "packaging.specifiers" not in others
    families = {name.split(".")[3] for name in own if name.startswith("fsdp_migrate.targets.modernise.")}
    assert families <= {"optimizer", "constructor", "state_dict", "flat_parameter", "moved", "general"}
    assert not {name for name in own if name.startswith("fsdp_migrate.workspace.projects.")} - {
        "fsdp_migrate.workspace.projects.inference"
    }
    assert not {name for name in own if name.startswith(("fsdp_migrate.rewrite", "fsdp_migrate.targets.fsdp2"))}


def test_what_a_repository_says_is_read_without_the_libraries_for_its_unusual_forms(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.py[cod]\n/data\n!data/kept\n")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\ndependencies = ['torch>=2.1']\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    file = tmp_path / "a.py"
    file.write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "def gathered(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
    )
    program = (
        f"from fsdp_migrate.commands.cli import cli\ncli(['lint', '--no-cache', {str(file)!r}], standalone_mode=False)"
    )
    _, others = loaded_beyond_click(program)
    assert "packaging.specifiers" not in others
    named = {name.partition(".")[0] for name in others}
    assert named <= {*STANDARD, "fnmatch", "json", "packaging", "string", "tomli", "tomllib", "zlib"}
