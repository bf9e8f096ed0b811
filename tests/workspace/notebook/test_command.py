"""The command line with notebooks, as its users start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import fsdp_migrate
from fsdp_migrate.commands.cli import cli

from .build import IMPORT, NEW, OLD, notebook

NOTEBOOK = notebook("# training", IMPORT, f"%cd ~\nx = {OLD}\nprint(x)")
MENDED = NOTEBOOK.replace(OLD.encode(), NEW.encode())
PLACE = "a.ipynb:cell 3:2:5: FSDP107 "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.ipynb").write_bytes(NOTEBOOK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(cli, list(arguments), input=stdin)


def test_notebooks_are_found_in_folders_but_for_jupyters_own_copies(folder: Path) -> None:
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "a-checkpoint.ipynb").write_bytes(NOTEBOOK)
    result = run("lint")
    assert result.exit_code == 1
    assert result.stdout.startswith(PLACE)
    assert "Found 1 finding in 1 of 1 file" in result.stdout


def test_json_names_the_cell() -> None:
    (finding,) = json.loads(run("lint", "--output-format", "json").stdout)["findings"]
    assert (finding["path"], finding["cell"], finding["line"], finding["column"]) == ("a.ipynb", 3, 2, 5)


def test_rewriting_changes_the_words_and_a_second_run_nothing(folder: Path) -> None:
    assert run("rewrite", "--check").exit_code == 1
    result = run("rewrite")
    assert (result.exit_code, (folder / "a.ipynb").read_bytes()) == (0, MENDED)
    assert result.stdout.startswith(PLACE)
    assert run("rewrite", "--check").exit_code == 0


def test_the_diff_can_be_applied(folder: Path) -> None:
    result = run("rewrite", "--diff")
    assert (result.exit_code, (folder / "a.ipynb").read_bytes()) == (1, NOTEBOOK)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=result.stdout_bytes, check=True)
    assert (folder / "a.ipynb").read_bytes() == MENDED


def test_a_text_from_stdin_is_a_notebook_by_its_name() -> None:
    assert run("lint", "--stdin-filename", "b.ipynb", "-", stdin=NOTEBOOK).stdout.startswith(f"b{PLACE[1:]}")
    result = run("rewrite", "--stdin-filename", "b.ipynb", "-", stdin=NOTEBOOK)
    assert (result.exit_code, result.stdout_bytes) == (0, MENDED)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (NOTEBOOK[:-3], "not valid JSON: Expecting ',' delimiter"),
        (json.dumps({"source": OLD}).encode(), "not a notebook: it has no list of cells"),
        (NOTEBOOK.replace(b"training", b"\xff"), "not valid utf-8"),
        (NOTEBOOK.replace(b"training", b"\0"), "not valid JSON: Invalid control character"),
        (b'{"cells": ' + b"[" * 100_000 + OLD.encode(), "too deeply nested to read"),
    ],
)
def test_what_is_no_notebook_is_one_line_and_stays_as_it_is(folder: Path, raw: bytes, message: str) -> None:
    (folder / "a.ipynb").write_bytes(raw)
    (folder / "b.ipynb").write_bytes(NOTEBOOK)
    result = run("rewrite", "-q")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: a.ipynb: {message}")
    assert (folder / "a.ipynb").read_bytes() == raw
    assert (folder / "b.ipynb").read_bytes() == MENDED
    echoed = run("rewrite", "--stdin-filename", "a.ipynb", "-", stdin=raw)
    assert (echoed.exit_code, echoed.stdout_bytes) == (3, raw)


def test_a_cell_that_does_not_parse_ends_with_exit_code_3(folder: Path) -> None:
    (folder / "a.ipynb").write_bytes(notebook(IMPORT, f"x = {OLD}\nif x", f"y = {OLD}\nprint(y)"))
    result = run("lint")
    assert result.exit_code == 3
    places = [line.partition(" FSDP")[0] for line in result.stdout.splitlines()[:2]]
    assert places == ["a.ipynb:cell 2:2:5:", "a.ipynb:cell 3:1:5:"]


def test_a_noqa_goes_into_the_cells(folder: Path) -> None:
    call = "FSDP.full_optim_state_dict(\n    model, optim)"
    (folder / "a.ipynb").write_bytes(notebook(IMPORT, f"%time x = {OLD}\n!ls\ny = {call}\n", f"{OLD} # why"))
    result = run("lint", "--add-noqa")
    assert result.exit_code == 0, result.output
    after = notebook(
        IMPORT,
        f"%time x = {OLD}  # noqa: FSDP107\n!ls\ny = FSDP.full_optim_state_dict(  # noqa: FSDP101\n    model, optim)\n",
        f"{OLD} # why  # noqa: FSDP107, FSDP111",
    )
    assert (folder / "a.ipynb").read_bytes() == after
    assert run("lint").exit_code == 0


def test_a_notebook_cannot_be_verified() -> None:
    result = run("verify", "--rewrite", "a.ipynb")
    assert result.exit_code == 2
    assert "a.ipynb: a notebook has no scenario" in result.stderr


def test_files_without_notebooks_are_linted_without_what_reads_them(folder: Path) -> None:
    (folder / "a.py").write_text(f"{IMPORT}{OLD}\n")
    program = (
        "import sys\nfrom fsdp_migrate.commands.cli import cli\n"
        "cli(['lint', 'a.py'], standalone_mode=False)\nprint(*sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(fsdp_migrate.__file__).parent.parent)}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert "FSDP107" in result.stdout
    assert "fsdp_migrate.workspace.notebook" not in result.stderr.split()


def test_names_are_followed_from_a_notebook_into_the_modules_of_the_project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["torch>=2.1"]\n')
    (folder / "lib.py").write_text(IMPORT)
    (folder / "a.ipynb").write_bytes(
        NOTEBOOK.replace(b"torch.distributed.fsdp import FullyShardedDataParallel as", b"lib import")
    )
    assert run("lint").stdout.startswith(PLACE)
