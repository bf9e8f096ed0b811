from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.noqa import with_noqa
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

SETTINGS = Settings(TorchRange.parse(">=2.1"))
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
OLD = "FSDP.full_optim_state_dict(model, optim)"
OTHER = "FSDP.scatter_full_optim_state_dict(state, model)"


def suppressed(text: str) -> str:
    """`text` with its suppressions, which are tested to leave nothing to report and to change nothing else."""
    raw = (IMPORT + text).encode()
    found = [f for f in lint_bytes(raw, "x.py", SETTINGS).findings if f.severity is not Severity.HINT]
    new = with_noqa(raw, found)
    after = lint_bytes(new, "x.py", SETTINGS)
    assert [f for f in after.findings if f.severity is not Severity.HINT] == []
    assert ast.dump(ast.parse(new)) == ast.dump(ast.parse(raw))
    return new.decode().removeprefix(IMPORT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"x = {OLD}\n", f"x = {OLD}  # noqa: FSDP101\n"),
        (f"x = {OLD}", f"x = {OLD}  # noqa: FSDP101"),
        (f"x = {OLD}\t \r\ny = 'é'\r\n", f"x = {OLD}  # noqa: FSDP101\t \r\ny = 'é'\r\n"),
        (f"x = {OLD}  # why\n", f"x = {OLD}  # why  # noqa: FSDP101\n"),
        (f"x = {OLD}  # noqa: E501 why\n", f"x = {OLD}  # noqa: E501, FSDP101 why\n"),
        (f"x = {OLD}; y = {OTHER}\n", f"x = {OLD}; y = {OTHER}  # noqa: FSDP101, FSDP104\n"),
        (f"x = [\n    {OLD},\n    {OLD},\n]\n", f"x = [\n    {OLD},  # noqa: FSDP101\n    {OLD},\n]\n"),
        (
            f"x = [\n    {OLD},\n    {OTHER},\n]\n",
            f"x = [\n    {OLD},  # noqa: FSDP101\n    {OTHER},  # noqa: FSDP104\n]\n",
        ),
        (f"x = {OLD} + \\\n    1\n", f"x = {OLD} + \\\n    1  # noqa: FSDP101\n"),
        (f'x = f"""{{{OLD}}}\n"""\n', f'x = f"""{{{OLD}}}\n"""  # noqa: FSDP101\n'),
        (f'x = {OLD}, """\n"""\n', f'x = {OLD}, """\n"""  # noqa: FSDP101\n'),
        (f"if {OLD}:\n    pass\n", f"if {OLD}:  # noqa: FSDP101\n    pass\n"),
        ("x = 1\n", "x = 1\n"),
    ],
)
def test_every_finding_gets_a_comment_where_one_can_stand(before: str, after: str) -> None:
    assert suppressed(before) == after


def test_a_suppression_that_is_not_needed_gets_none_of_its_own() -> None:
    raw = b"x = 1  # noqa: FSDP101\n"
    assert with_noqa(raw, lint_bytes(raw, "x.py", SETTINGS).findings) == raw


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **more: CliRunner().invoke(cli, arguments, catch_exceptions=False, **more)


def test_the_command_says_what_it_did_and_what_is_left(run: Callable[..., Result]) -> None:
    Path("a.py").write_text(f"{IMPORT}x = {OLD}\ny = {OTHER}\n")
    Path("b.py").write_text(f"{IMPORT}x = {OLD}\n")
    Path("c.py").write_text(f"{IMPORT}x = {OLD}\n(\n")
    result = run("lint", "--add-noqa")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[0] == "Suppressed 3 findings in 2 files."
    assert result.stderr.count('put external = ["FSDP"] under [tool.ruff.lint]') == 1
    assert "c.py:3:1: FSDP001" in result.stdout.splitlines()[1]
    assert Path("b.py").read_text() == f"{IMPORT}x = {OLD}  # noqa: FSDP101\n"
    Path("c.py").unlink()
    again = run("lint", "--add-noqa")
    assert (again.exit_code, again.stdout) == (
        0,
        "Suppressed 0 findings in 0 files.\n"
        "No findings in 2 files; 3 suppressed by comments; hints were not looked for (--hints).\n",
    )
    assert again.stderr == ""


def test_a_notebook_gets_them_in_its_cells_and_changes_nowhere_else(run: Callable[..., Result]) -> None:
    cells = [f"{IMPORT}%time x = {OLD}", f"y = [\n    {OTHER},\n]\n%matplotlib inline"]
    notebook = {"cells": [{"cell_type": "code", "source": source} for source in cells], "nbformat": 4}
    before = json.dumps(notebook, indent=1)
    Path("a.ipynb").write_text(before)
    result = run("lint", "--add-noqa")
    assert result.stdout.splitlines()[0] == "Suppressed 2 findings in 1 file."
    after = before.replace(OLD, f"{OLD}  # noqa: FSDP101").replace(f"{OTHER},", f"{OTHER},  # noqa: FSDP104")
    assert Path("a.ipynb").read_text() == after


def test_only_what_is_selected_is_suppressed(run: Callable[..., Result]) -> None:
    Path("a.py").write_text(f"{IMPORT}x = {OLD}\ny = {OTHER}\n")
    assert run("lint", "--add-noqa", "-q", "--select", "FSDP104").stdout == ""
    assert Path("a.py").read_text() == f"{IMPORT}x = {OLD}\ny = {OTHER}  # noqa: FSDP104\n"


def test_stdin_and_reports_for_programs_are_refused(run: Callable[..., Result]) -> None:
    assert run("lint", "--add-noqa", "-", input="x = 1\n").exit_code == 2
    assert run("lint", "--add-noqa", "--output-format", "json").exit_code == 2
