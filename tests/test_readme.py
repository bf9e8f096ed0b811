"""The README: its commands print what stands there, its picture is a real run, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdp_migrate.commands.cli import cli
from tools import build_picture

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
AGENTS = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"^<!-- run -->\n```console\n(.*?)^```", README + AGENTS, re.MULTILINE | re.DOTALL)
OF_GIT = ("diff --git", "index ", "--- ", "+++ ", "@@ ", "new file")


def printed(command: str) -> str:
    """What a command prints in the current folder; of a diff its changed lines."""
    alone = command.removesuffix("; echo $?")
    program, *words = shlex.split(alone)
    if program == "python":
        plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
        shown = (f"{step['id']}\n  {step['by']}\n  {step['command']}\n  {step['check']}\n" for step in plan["steps"])
        return "".join(shown)
    if program == "git":
        told = subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
        return "".join(line for line in told.splitlines(keepends=True) if not line.startswith(OF_GIT))
    assert program == "fsdp-migrate"
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    return result.output + (f"{result.exit_code}\n" if alone != command else "")


@pytest.mark.parametrize("session", SESSIONS, ids=["upgrade", "dcp", "fsdp2", "agents"])
def test_the_tasks_print_what_the_readme_shows(session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "example", tmp_path / "example")
    monkeypatch.chdir(tmp_path / "example")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    commands = re.findall(r"^\$ (.+)$", session, re.MULTILINE)
    assert "".join(f"$ {command}\n{printed(command)}" for command in commands) == session


def test_the_picture_is_a_run_of_today() -> None:
    picture = (ROOT / build_picture.PICTURE).read_text(encoding="utf-8")
    assert picture == build_picture.picture(), f"run `{build_picture.COMMAND}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        if "://" in target:
            continue
        linked = page if not path else page.parent / path
        assert linked.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}, target


def test_the_index_of_the_docs_names_every_page_once() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\((\w+\.md)\)", index)
    assert sorted(named) == sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")
