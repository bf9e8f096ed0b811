"""The formats through the command line: where each goes, and what else is said."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.report.output import LINT_FORMATS
from tests import stub_engine

SUMMARY = (
    "Found 1 finding in 1 of 1 file: 1 fixable"
    "; hints were not looked for (--hints).\n`fsdp-migrate rewrite` fixes 1; add --diff for a preview.\n"
)


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub_engine.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    Path(".git").mkdir()


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)


@pytest.mark.parametrize("name", LINT_FORMATS)
def test_every_format_has_the_same_exit_codes_and_goes_to_stdout_or_a_file(name: str) -> None:
    Path("a.py").write_text("x = SAFE\n")
    shown = run("lint", "--output-format", name, "-q")
    assert (shown.exit_code, shown.stderr) == (1, "")
    assert "FSDP101" in shown.stdout
    filed = run("lint", "--output-format", name, "--output-file", "report")
    assert (filed.exit_code, filed.stdout) == (1, SUMMARY)
    assert Path("report").read_bytes() == shown.stdout_bytes
    assert run("lint", "--output-format", name, "--exit-zero").exit_code == 0
    Path("a.py").write_text("x = 1\n")
    assert run("lint", "--output-format", name).exit_code == 0
    Path("a.py").write_text("UNDECODABLE\n")
    failed = run("lint", "--output-format", name)
    assert failed.exit_code == 3
    assert "not valid utf-8" in failed.stdout + failed.stderr


@pytest.mark.parametrize("name", ["json", "sarif", "github", "junit"])
def test_what_a_document_tells_of_failures_is_not_said_twice(name: str) -> None:
    Path("a.py").write_text("UNDECODABLE\n")
    result = run("lint", "--output-format", name)
    assert "not valid utf-8" in result.stdout
    assert result.stderr == ""


def test_failures_are_told_beside_a_report_in_a_file() -> None:
    Path("a.py").write_text("UNDECODABLE\n")
    result = run("lint", "-q", "--output-format", "sarif", "--output-file", "report")
    assert (result.stdout, result.stderr) == ("", "error: a.py: not valid utf-8\n")


def test_concise_is_a_line_a_finding_and_the_summary() -> None:
    Path("a.py").write_text("x = SAFE\n")
    result = run("lint", "--output-format", "concise")
    assert result.stdout == f"a.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]\n{SUMMARY}"


def test_json_lines_are_the_findings_of_json() -> None:
    Path("a.py").write_text("x = SAFE\ny = MANUAL\n")
    findings = json.loads(run("lint", "--output-format", "json").stdout)["findings"]
    lines = run("lint", "--output-format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == findings
    Path("a.py").write_text("x = 1\n")
    assert run("lint", "--output-format", "jsonl").stdout == ""


def test_documents_are_utf_8_whatever_the_terminal_speaks() -> None:
    Path("caf\u00e9.py").write_text("x = SAFE\n")
    result = CliRunner(charset="latin-1").invoke(cli, ["lint", "--output-format", "github"])
    assert "file=caf\u00e9.py," in result.stdout_bytes.decode("utf-8")


@pytest.mark.parametrize("name", ["text", "concise", "json", "sarif"])
def test_rewrite_reports_what_is_left(name: str) -> None:
    Path("a.py").write_text("x = SAFE\ny = MANUAL\n")
    result = run("rewrite", "--output-format", name, "--output-file", "report")
    assert result.exit_code == 1
    assert (
        result.stdout
        == "Fixed 1 finding in 1 of 1 file; 1 finding left: 1 manual; hints were not looked for (--hints).\n"
    )
    assert "FSDP104" in Path("report").read_text()
    assert Path("a.py").read_text() == "x = DONE\ny = MANUAL\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rewrite", "--output-format", "junit"], "'junit' is not one of 'text', 'concise', 'json', 'sarif'"),
        (["rewrite", "--diff", "--output-format", "sarif"], "--output-format sarif cannot be combined with --diff"),
        (["rewrite", "--check", "--output-file", "report"], "--output-file cannot be combined with --check or '-'"),
        (["rewrite", "--output-format", "json", "-"], "--output-format json cannot be combined with --check or '-'"),
        (["lint", "--statistics", "--output-format", "sarif"], "--statistics counts in text or json"),
        (["lint", "--show-torch-range", "--output-format", "sarif"], "--show-torch-range prints text or json"),
        (["lint", "--output-file", "nowhere/report"], "nowhere/report cannot be written: No such file or directory"),
        (["lint", "--output-file", "."], "File '.' is a directory"),
    ],
)
def test_what_cannot_be_combined_is_bad_usage(arguments: list[str], message: str) -> None:
    Path("a.py").write_text("x = SAFE\n")
    result = run(*arguments, stdin="x = SAFE\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
    assert Path("a.py").read_text() == "x = SAFE\n"


def test_a_report_replaces_a_file_keeps_its_mode_and_follows_its_link() -> None:
    Path("a.py").write_text("x = SAFE\n")
    Path("real").write_text("older and longer than the report\n" * 9)
    Path("real").chmod(0o640)
    Path("link").symlink_to("real")
    run("lint", "--output-file", "link")
    assert os.readlink("link") == "real"
    assert Path("real").read_text() == "a.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]\n"
    assert stat.S_IMODE(os.stat("real").st_mode) == 0o640
    assert sorted(os.listdir()) == [".git", "a.py", "link", "real"]


def test_a_report_can_go_into_a_pipe() -> None:
    Path("a.py").write_text("x = SAFE\n")
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    run("lint", "--output-file", "pipe")
    assert os.read(reader, 1000) == b"a.py:1:5: FSDP101 `SAFE` is old [deprecated, fixable]\n"
    os.close(reader)


def test_a_diff_goes_into_a_file_or_a_document() -> None:
    Path("a.py").write_bytes(b"x = SAFE\ny = MANUAL  # \xc3\xa9\n")
    shown = run("rewrite", "--diff")
    filed = run("rewrite", "--diff", "--output-file", "a.patch")
    assert (filed.exit_code, filed.stdout, filed.stderr) == (1, "", shown.stderr)
    assert Path("a.patch").read_bytes() == shown.stdout_bytes
    told = run("rewrite", "--diff", "--output-format", "json")
    document = json.loads(told.stdout)
    assert (told.exit_code, document["diffs"]) == (1, {"a.py": shown.stdout})
    assert [finding["code"] for finding in document["fixed"]] == ["FSDP101"]
    assert Path("a.py").read_bytes() == b"x = SAFE\ny = MANUAL  # \xc3\xa9\n"


def test_without_a_change_a_diff_is_an_empty_file() -> None:
    Path("a.py").write_text("x = 1\n")
    assert run("rewrite", "--diff", "--output-file", "a.patch").exit_code == 0
    assert Path("a.patch").read_bytes() == b""
    assert json.loads(run("rewrite", "--diff", "--output-format", "json").stdout)["diffs"] == {}
