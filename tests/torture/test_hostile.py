"""Code under analysis is data: nothing of it runs, and none of it reaches a terminal as anything but text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.test_process import on_a_terminal
from tests.torture.programs import LEGACY, call, run

TRIGGER = "import pathlib\npathlib.Path({!r}).touch()\n"

# What the program itself imports, sooner or later; and what build tools and test runners execute.
MODULES = [
    "click.py", "libcst/__init__.py", "torch/__init__.py", "rich/__init__.py", "packaging/__init__.py", "yaml.py",
    "pathspec/__init__.py", "tomli.py", "tomllib.py", "json.py", "difflib.py", "setup.py", "conftest.py",
    "sitecustomize.py", "noxfile.py",
]  # fmt: skip

COLOUR = "\x1b[31m"
TITLE = "\x1b]0;owned\x07"
BACKWARDS = "\u202e"

# Whatever of this is quoted in a message, a frame or a diff must not act on the terminal.
SCREAMING = f"""\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
# {COLOUR}{TITLE}{BACKWARDS}[bold red]x[/]
x["{COLOUR}{TITLE}{BACKWARDS}[blink]"].full_optim_state_dict(FSDP, "{COLOUR}")
getattr(FSDP, "full_optim_state_dict")("{TITLE}[/]")
optims["{COLOUR}"] = FSDP.full_optim_state_dict(models["{COLOUR}"], optims["{COLOUR}"])
FSDP.full_optim_state_dict(model, optim, **{{"{TITLE}": "{BACKWARDS}"}})
with FSDP.state_dict_type(models["{COLOUR}"], "{TITLE}"): pass
"""


@pytest.mark.parametrize("arguments", [["lint"], ["rewrite", "--diff"], ["rewrite"], ["lint", "--show-torch-range"]])
def test_no_file_of_a_tree_is_imported_or_run(tmp_path: Path, arguments: list[str]) -> None:
    mark = tmp_path / "was run"
    root = tmp_path / "tree"
    for name in MODULES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(TRIGGER.format(str(mark)) + LEGACY)
    (root / "setup.cfg").write_text(
        "[metadata]\nname = x\nversion = attr: setup.mark\n[options]\ninstall_requires = torch\n"
    )
    (root / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'setup'\nbackend-path = ['.']\n"
    )
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p setup\n")
    ended = run(root, *arguments)
    assert ended.returncode in (0, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not mark.exists()


def test_nothing_of_a_program_is_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "was run"
    bomb = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    (tmp_path / "a.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        f"if torch.__version__ >= str({bomb}):\n    FSDP.full_optim_state_dict(model, optim, {bomb})\n"
        f"x: '{bomb}' = FSDP(model, **{{f'{{{bomb}}}': 1}})\n__all__ = [{bomb}]\n"
    )
    call(tmp_path, "rewrite", "--unsafe-fixes", "--hints", ".")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["a.py", f"{COLOUR}red.py", f"{TITLE}.py", f"{BACKWARDS}yp.py", "[bold]a.py", "a\n::error::b.py"]
)
@pytest.mark.parametrize("arguments", [["lint", "--hints"], ["lint", "--output-format", "concise"], ["rewrite"]])
def test_what_is_said_to_a_pipe_is_printable(tmp_path: Path, name: str, arguments: list[str]) -> None:
    (tmp_path / name).write_text(SCREAMING)
    (tmp_path / f"bad{name}").write_text(SCREAMING + f"\n{COLOUR} = (\n")
    result = call(tmp_path, *arguments, ".")
    assert (result.stdout + result.stderr).replace("\n", "").isprintable()
    assert not re.search(r"^::", result.stdout + result.stderr, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["lint", "--hints"], ["rewrite", "--diff"], ["rewrite"]])
def test_what_is_said_to_a_terminal_is_text_and_the_colours_of_the_program(
    tmp_path: Path, arguments: list[str]
) -> None:
    for name in ("a.py", f"{COLOUR}red.py", f"{TITLE}.py"):
        (tmp_path / name).write_text(SCREAMING)
    output = on_a_terminal(tmp_path, *arguments)
    assert re.sub(r"\x1b\[[0-9;]*m", "", output).replace("\n", "").isprintable()
    assert "\ufffd[31m" in output
    assert COLOUR + "\ufffd" not in output


def test_documents_for_programs_hold_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / f"{COLOUR}a.py").write_text(SCREAMING)
    for form in ("json", "sarif", "gitlab"):
        result = call(tmp_path, "lint", "--output-format", form, ".")
        json.loads(result.stdout)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x9b]", result.stdout), form


def test_the_current_folder_is_no_place_to_look_for_modules(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('not this one')\n")
    ended = run(tmp_path, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
