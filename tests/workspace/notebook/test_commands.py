"""The commands that a notebook gives to a shell, in which FSDP822 looks for the launcher."""

from __future__ import annotations

import pytest

from fsdp_migrate.findings import Severity
from fsdp_migrate.lint import lint_bytes
from fsdp_migrate.planning.noqa import with_noqa
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

from .build import notebook

ANY = TorchRange.parse(">=2.1")
OPTION = "FSDP821"
LAUNCH = "FSDP822"
COMMAND = "python -m torch.distributed.launch train.py"


def _in_notebook(*cells: str) -> list[tuple[Severity, int | None, int, int, int, int]]:
    settings = Settings(ANY, select=(LAUNCH,), hints=True)
    found = lint_bytes(notebook(*cells), "a.ipynb", settings).findings
    assert all(one.fix is None for one in found)
    return [(one.severity, one.cell, one.line, one.column, one.end_line, one.end_column) for one in found]


@pytest.mark.parametrize(
    "cell",
    [
        f"!{COMMAND}",
        f"x = 1\n!!{COMMAND}",
        f"out = !{COMMAND}",
        f"if x:\n    !{COMMAND}",
        f"%system {COMMAND}",
        "%run -m torch.distributed.launch train.py",
        f"%%capture\n!{COMMAND}",
        f"%%bash\n{COMMAND}",
        f"%%bash --bg\nset -e\n{COMMAND}",
        f"%%sh\n{COMMAND}",
        f"%%sx\n{COMMAND}",
        f"%%!\n{COMMAND}",
        f"%%script bash -x\n{COMMAND}",
        f"%%script /bin/sh\n{COMMAND}",
        f"%%time\n%%bash\n{COMMAND}",
        f"%sh\n{COMMAND}",
        f"%%writefile run.sh\n#!/bin/sh\n{COMMAND}",
        f"\u00e9 = 1\n!echo \u00e9; {COMMAND}",
    ],
)
def test_a_command_of_a_notebook_is_a_finding_at_its_place(cell: str) -> None:
    start = cell.index("-m torch")
    line, column = cell.count("\n", 0, start) + 1, start - cell.rfind("\n", 0, start)
    end = column + len("-m torch.distributed.launch")
    assert _in_notebook("import torch", cell) == [(Severity.DEPRECATED, 2, line, column, line, end)]


def test_a_command_of_several_lines_is_one_finding() -> None:
    assert _in_notebook("!python -m \\\n  torch.distributed.launch --nproc_per_node 2 train.py") == [
        (Severity.DEPRECATED, 1, 1, 9, 2, 27)
    ]
    twice = f"%%bash\n{COMMAND}\n{COMMAND}"
    assert [place[2] for place in _in_notebook(twice)] == [2, 3]


@pytest.mark.parametrize(
    "cell",
    [
        f"%%bash\n# {COMMAND}",
        f"!ls # {COMMAND}",
        "!python -m torch.distributed.launcher",
        f"%%html\n{COMMAND}",
        f"%%writefile README.md\n{COMMAND}",
        f"%%script perl\n{COMMAND}",
        "!torchrun train.py",
        f"# {COMMAND}",
    ],
)
def test_what_no_shell_of_a_notebook_runs_is_none(cell: str) -> None:
    assert _in_notebook("import torch", cell) == []


def test_names_in_a_command_are_nobodys() -> None:
    cells = ("from torch.distributed.fsdp import FlatParameter", f"!FlatParameter; {COMMAND}")
    found = lint_bytes(notebook(*cells), "a.ipynb", Settings(ANY, hints=True)).findings
    assert [one.code for one in found if one.cell == 2] == [LAUNCH]


def test_the_launcher_in_a_command_makes_the_option_break() -> None:
    cells = ('import argparse\np = argparse.ArgumentParser()\np.add_argument("--local_rank")', f"!{COMMAND}")
    found = lint_bytes(notebook(*cells), "a.ipynb", Settings(ANY)).findings
    assert [(one.code, one.severity) for one in found] == [
        (OPTION, Severity.BREAKS),
        (LAUNCH, Severity.DEPRECATED),
    ]


def test_a_comment_of_the_shell_silences_its_line() -> None:
    cell = f"%%bash\n{COMMAND} # noqa: {LAUNCH}\n{COMMAND}\n{COMMAND} \\\n  --x 1  # fsdp-migrate: ignore[{LAUNCH}]"
    assert [place[2] for place in _in_notebook(cell)] == [3]
    assert _in_notebook(f"!{COMMAND}  # noqa: {LAUNCH}", f"!echo '#noqa'; {COMMAND}") == [
        (Severity.DEPRECATED, 2, 1, 23, 1, 50)
    ]


def test_suppressing_what_is_found_leaves_commands_alone() -> None:
    raw = notebook("import os", f"!{COMMAND}\nos.system('{COMMAND}')")
    found = lint_bytes(raw, "a.ipynb", Settings(ANY, select=(LAUNCH,))).findings
    new = with_noqa(raw, found)
    assert new.count(b"noqa") == 1
    assert [one.line for one in lint_bytes(new, "a.ipynb", Settings(ANY, select=(LAUNCH,))).findings] == [1]
