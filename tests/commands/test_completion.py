"""Completion as docs/configuration.md sets it up: the shell asks the installed program through a variable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_process import ENVIRONMENT

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
LINES = re.findall(r"(_\w+_COMPLETE)=(\w+)_source fsdp-migrate", PAGE)
PROGRAM = "import sys; from fsdp_migrate.commands.cli import main; sys.argv[0] = '/bin/fsdp-migrate'; main()"


def asked(variable: str, instruction: str, **more: str) -> str:
    environment = ENVIRONMENT | {variable: instruction} | more
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("variable", "shell"), LINES, ids=[shell for _, shell in LINES])
def test_the_page_names_the_variable_that_is_asked(variable: str, shell: str) -> None:
    assert f"{variable}={shell}_complete" in asked(variable, f"{shell}_source")


def test_the_page_speaks_of_three_shells() -> None:
    assert [shell for _, shell in LINES] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    ("words", "number", "offered"),
    [
        ("fsdp-migrate li", 1, {"plain,lint"}),
        ("fsdp-migrate lint --fail-on ", 3, {"plain,breaks", "plain,changes", "plain,deprecated", "plain,hint"}),
        ("fsdp-migrate lint --add", 2, {"plain,--add-noqa"}),
        ("fsdp-migrate config sr", 2, {"file,sr"}),
    ],
)
def test_commands_options_values_and_paths_are_completed(words: str, number: int, offered: set[str]) -> None:
    answer = asked(LINES[0][0], "bash_complete", COMP_WORDS=words, COMP_CWORD=str(number))
    assert set(answer.split()) == offered
