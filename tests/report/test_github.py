from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.report import Plan, github
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import Failure
from fsdp_migrate.workspace.settings import Project, Settings
from tests.report.plans import BROKEN, HEAD, HINT, HOSTILE, HOSTILE_PATH, SAFE, linted
from tests.stub_engine import lint_bytes


@pytest.fixture(autouse=True)
def _not_in_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)


def test_a_finding_is_a_command_with_its_place_and_the_line_of_the_text_report() -> None:
    (command,) = github.report(linted({"src/a.py": HEAD + SAFE})).splitlines()
    properties, message = command.removeprefix("::").split("::", 1)
    assert properties == (
        "warning title=FSDP101 (full-optim-state-dict),file=src/a.py,line=2,endLine=2,col=9,endColumn=35"
    )
    assert message.startswith("src/a.py:2:9: FSDP101 `full_optim_state_dict` is deprecated since torch 2.0")
    assert message.endswith("[deprecated, fixable]")


@pytest.mark.parametrize(
    ("word", "level"), [("BROKEN_API", "error"), ("UNSAFE", "warning"), ("SAFE", "warning"), ("HINT", "notice")]
)
def test_the_severity_is_the_level(word: str, level: str) -> None:
    report = lint_bytes(word.encode(), "a.py", Settings(TorchRange.default(), hints=True))
    assert github.report(Plan(torch=">=2.1", findings=report.findings)).startswith(f"::{level} ")


def test_columns_are_given_within_one_line_only() -> None:
    text = HEAD + "state = FSDP.\\\n  full_optim_state_dict(model, optim)\n"
    assert ",line=2,endLine=3::" in github.report(linted({"a.py": text}))


def test_failures_and_warnings_are_commands_too() -> None:
    project = Project(".", TorchRange.parse(">=2.1"), "x", warnings=("50% of setup.cfg",))
    plan = Plan(torch=">=2.1", failures=(Failure("a,b.py", "not valid utf-8"),), projects=(project,))
    assert github.report(plan).splitlines() == [
        "::error title=fsdp-migrate,file=a%2Cb.py::a,b.py: not valid utf-8",
        "::warning title=fsdp-migrate::50%25 of setup.cfg",
    ]
    assert github.report(linted({"a.py": HEAD + BROKEN})).startswith("::error title=FSDP001 ")


def unescaped(text: str, *more: tuple[str, str]) -> str:
    """What the runner of GitHub Actions makes of a message, or with more pairs of a property."""
    for raw, escaped in (("\r", "%0D"), ("\n", "%0A"), *more, ("%", "%25")):
        text = text.replace(escaped, raw)
    return text


def test_no_name_and_no_text_starts_a_command_or_a_property_of_its_own() -> None:
    found = linted({HOSTILE_PATH: HOSTILE, "::stop-commands::x,line=9.py": HEAD + SAFE})
    message = "bad\r\n::add-mask::x\n%0A::warning::"
    plan = Plan(torch=found.torch, findings=found.findings, failures=(Failure(HOSTILE_PATH, message),))
    lines = github.report(plan).split("\n")
    assert len(lines) == 3
    for line in lines:
        assert "\r" not in line
        _, properties, _ = line.split("::", 2)
        keys = {pair.split("=", 1)[0] for pair in properties.split(" ", 1)[1].split(",")}
        assert {"title", "file"} <= keys <= {"title", "file", "line", "endLine", "col", "endColumn"}
    _, properties, escaped = lines[-1].split("::", 2)
    assert unescaped(escaped) == f"{HOSTILE_PATH}: {message}"
    name = properties.split("file=", 1)[1]
    assert unescaped(name, (":", "%3A"), (",", "%2C")) == HOSTILE_PATH


def test_paths_start_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert ",file=sub/a.py," in github.report(linted({"a.py": HEAD + SAFE}))
    assert ",file=sub/a.py," in github.report(linted({str(tmp_path / "sub" / "a.py"): HEAD + SAFE}))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    assert ",file=a.py," in github.report(linted({"a.py": HEAD + SAFE}))


def test_a_clean_run_says_nothing() -> None:
    assert github.report(linted({"a.py": HEAD + HINT})) == ""
