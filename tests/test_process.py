"""The program as its users start it: a process of its own, with the real engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fsdp_migrate
from fsdp_migrate import runner
from fsdp_migrate.commands import cli

LEGACY = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optim):
    return FSDP.full_optim_state_dict(model, optim)
"""

COMMAND = [sys.executable, "-m", "fsdp_migrate"]

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
ENVIRONMENT |= {"PYTHONPATH": str(Path(fsdp_migrate.__file__).parent.parent)}


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        encoding="utf-8",
    )


def loaded_modules(folder: Path, *arguments: str) -> set[str]:
    program = (
        "import sys\nfrom fsdp_migrate.commands.cli import cli\n"
        f"cli({list(arguments)!r}, standalone_mode=False)\nprint(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in result.stderr.split()}


def test_linting_files_without_fsdp_names_loads_nothing_heavy(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"module_{number}.py").write_text("import torch\nimport libcst\n\nx = torch.ones(3)\n")
    loaded = loaded_modules(tmp_path, "lint", ".")
    assert loaded & {"libcst", "torch", "rich", "pygments", "pathspec", "yaml", "multiprocessing"} == set()
    assert loaded & {"configparser", "tomllib"} == set()


def test_linting_and_reporting_findings_to_a_pipe_loads_neither_libcst_nor_torch_nor_rich(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    for output in ("text", "concise", "json", "jsonl", "github", "gitlab", "junit"):
        assert loaded_modules(tmp_path, "lint", "--output-format", output) & {"libcst", "torch", "rich"} == set()


def test_sarif_loads_libcst_only_for_the_text_of_a_fix(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY.replace("full_optim_state_dict(model, optim)", "full_optim_state_dict"))
    sarif = ("lint", "--output-format", "sarif")
    assert loaded_modules(tmp_path, *sarif) & {"libcst", "torch", "rich"} == set()
    (tmp_path / "a.py").write_text(LEGACY)
    assert loaded_modules(tmp_path, *sarif) & {"libcst", "torch", "rich"} == {"libcst"}


def test_rewriting_files_with_nothing_to_fix_does_not_load_libcst(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert loaded_modules(tmp_path, "rewrite") & {"libcst", "torch", "rich"} == set()


def test_the_whole_way_from_findings_to_a_rewritten_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    linted = start(tmp_path, "lint", ".")
    assert linted.returncode == 1
    assert linted.stdout.startswith("a.py:5:12: FSDP101 ")
    diff = start(tmp_path, "rewrite", "--diff")
    assert diff.returncode == 1
    assert (tmp_path / "a.py").read_text() == LEGACY
    assert start(tmp_path, "rewrite").returncode == 0
    subprocess.run(["git", "apply", "-R", "-"], cwd=tmp_path, input=diff.stdout, text=True, check=True)
    assert (tmp_path / "a.py").read_text() == LEGACY


def test_names_and_texts_beyond_ascii_are_no_trouble_in_an_ascii_world(tmp_path: Path) -> None:
    (tmp_path / "caf\u00e9.py").write_text(f"# \u4f60\u597d\n{LEGACY}", encoding="utf-8")
    ascii_world = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    linted = start(tmp_path, "lint", **ascii_world)
    assert (linted.returncode, linted.stderr) == (1, "")
    assert linted.stdout.startswith("caf\\xe9.py:6:12: FSDP101 ")
    diff = start(tmp_path, "rewrite", "--diff", **ascii_world)
    assert diff.stdout.startswith("--- a/caf\u00e9.py\n+++ b/caf\u00e9.py\n")


STDOUT_COMMANDS = (
    "lint --no-cache a.py",
    "lint --no-cache --output-format json a.py",
    "rewrite --diff a.py",
    "explain FSDP101",
    "rules",
    "api optim_state_dict_to_load",
    "config",
    "--help",
)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("command", "unbuffered"), [*((command, "") for command in STDOUT_COMMANDS), ("lint --no-cache", "1")]
)
def test_a_stdout_that_cannot_be_written_is_told_in_one_line(command: str, unbuffered: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*COMMAND, *command.split()],
            cwd=tmp_path,
            env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "Error: stdout cannot be written: No space left on device"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("colour", [{}, {"FORCE_COLOR": "1"}], ids=["plain", "colour"])
@pytest.mark.parametrize("command", ["lint --no-cache", "explain FSDP101"])
def test_a_reader_that_goes_away_is_told_of_in_one_line(command: str, colour: dict[str, str], tmp_path: Path) -> None:
    body = "    FSDP.full_optim_state_dict(model, optim)\n" * 700
    (tmp_path / "a.py").write_text(LEGACY.replace("    return FSDP.full_optim_state_dict(model, optim)\n", body))
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        result = subprocess.run(
            [*COMMAND, *command.split()],
            cwd=tmp_path,
            env=ENVIRONMENT | colour,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (result.returncode, result.stderr) == (2, "Error: stdout cannot be written: Broken pipe\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_streams_that_both_cannot_be_written_end_with_the_same_exit_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    with open("/dev/full", "w") as full:
        command = [*COMMAND, "lint", "--no-cache"]
        assert subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, stdout=full, stderr=full).returncode == 2


def test_nothing_is_said_when_interrupted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(runner, "lint", interrupt)
    monkeypatch.setattr(sys, "argv", ["fsdp-migrate", "lint"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert "".join(capfd.readouterr()).strip() == ""


def on_a_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    variables = {name: value for name, value in ENVIRONMENT.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    variables |= {"TERM": "xterm-256color", "COLUMNS": "100"} | environment
    with subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=follower, env=variables) as process:
        os.close(follower)
        output = b""
        try:
            while piece := os.read(leader, 65536):
                output += piece
        except OSError:  # how Linux says that the other side is closed
            pass
    os.close(leader)
    assert process.returncode in (0, 1)
    return output.decode().replace("\r\n", "\n")


def test_on_a_terminal_findings_are_framed_and_coloured(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    output = on_a_terminal(tmp_path, "lint")
    assert "5 | \x1b[0m    return FSDP.full_optim_state_dict(model, optim)\n" in output
    assert "^^^^" in output
    assert "\x1b[1;33mFSDP101\x1b[0m" in output


def test_no_color_means_no_colour(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    output = on_a_terminal(tmp_path, "lint", NO_COLOR="1")
    assert "5 |     return FSDP.full_optim_state_dict(model, optim)\n" in output
    assert "\x1b[3" not in output
    assert ";3" not in output


def test_force_color_draws_into_a_pipe_as_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    for arguments in (["lint"], ["lint", "--output-format", "concise"], ["explain", "FSDP101"]):
        assert "\x1b[" in start(tmp_path, *arguments, FORCE_COLOR="1").stdout
        assert "\x1b[" not in start(tmp_path, *arguments, FORCE_COLOR="").stdout
    no_color = start(tmp_path, "lint", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "^^^^" in no_color
    assert "\x1b[3" not in no_color


@pytest.mark.parametrize("name", ["json", "jsonl", "sarif", "github", "gitlab", "junit"])
def test_no_document_and_no_file_gets_a_colour(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    assert "\x1b" not in start(tmp_path, "lint", "--output-format", name, FORCE_COLOR="1").stdout
    start(tmp_path, "lint", "--output-file", "report", FORCE_COLOR="1")
    assert "\x1b" not in (tmp_path / "report").read_text()


def test_a_diff_into_a_pipe_can_be_applied_whatever_the_colours(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    assert "\x1b" not in start(tmp_path, "rewrite", "--diff", FORCE_COLOR="1").stdout


def test_concise_is_one_line_a_finding_on_a_terminal_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    output = on_a_terminal(tmp_path, "lint", "--output-format", "concise", "-q")
    assert "\x1b[1;33mFSDP101\x1b[0m" in output
    assert output.count("\n") == 1
    assert "^" not in output


def test_hostile_names_and_texts_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a\n::error::\x1b[2J\u202e.py"
    path.write_text(LEGACY.replace("dict(model, optim)", "dict(model, '\x1b]0;gone\x07\u202e')"))
    for output in ("text", "concise"):
        drawn = on_a_terminal(tmp_path, "lint", "--output-format", output)
        assert "FSDP101" in drawn
        for bad in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\n::error"):
            assert bad not in drawn
        piped = start(tmp_path, "lint", "--output-format", output).stdout
        assert all(line.isprintable() for line in piped.split("\n"))


def test_explain_and_rules_are_drawn_on_a_terminal_and_plain_in_a_pipe(tmp_path: Path) -> None:
    for arguments in (["explain", "FSDP101"], ["rules"]):
        assert "\x1b[" in on_a_terminal(tmp_path, *arguments)
        piped = start(tmp_path, *arguments)
        assert piped.returncode == 0
        assert "\x1b" not in piped.stdout
        assert "FSDP101" in piped.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start_change_no_exit_code(closed: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY)
    command = f"{sys.executable} -m fsdp_migrate lint --no-cache a.py {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
