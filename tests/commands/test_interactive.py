"""`rewrite --interactive`: one question about each fix, and what the answers do."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fsdp_migrate import runner
from fsdp_migrate.commands import interactive
from fsdp_migrate.commands.cli import cli
from fsdp_migrate.workspace import filesystem
from tests.planning.renaming import Renaming, configuration
from tests.test_process import ENVIRONMENT

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
SAVES = IMPORT + "\n\ndef save(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
TWICE = SAVES + "\n\ndef again(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
LOADS = "import torch\n\ntorch.cuda.amp.autocast()\n" + IMPORT
UNSAFE = (
    IMPORT
    + "from torch.distributed.fsdp import FullStateDictConfig, StateDictType\n\n\ndef save(model, optim):\n"
    + "    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):\n"
    + "        return FSDP.optim_state_dict(model, optim)\n"
)
STARTED = "from fsdp_migrate.start import main; main()"
COMMAND = ("rewrite", "--interactive", "--no-cache", "--torch", ">=2.4")
KEYS = ("\x04", "\x03")  # the end of input, Ctrl-C
QUESTION = re.compile(r"Make this fix \[[^]]*\]\? ")


@pytest.fixture(autouse=True)
def _in_front_of_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(interactive, "is_terminal", lambda: True)
    monkeypatch.chdir(tmp_path)


def session(answers: Iterable[str], *options: str) -> tuple[int, str, int]:
    """The exit code, what was shown, and how many questions were asked. No answer is left over."""
    given = list(answers)
    done = CliRunner().invoke(cli, [*COMMAND, *options], input="".join(given), catch_exceptions=False)
    asked = len(QUESTION.findall(done.output))
    assert asked >= len(given)
    return done.exit_code, done.output, asked


def typed(folder: Path, answers: Iterable[str]) -> tuple[int, str]:
    """The exit code and what was shown, on a terminal of a process of its own."""
    pty = pytest.importorskip("pty")
    environment = {**ENVIRONMENT, "TERM": "dumb", "COLUMNS": "200", "NO_COLOR": "1"}
    waiting, output = list(answers), ""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-c", STARTED, *COMMAND], environment)
    sent = ""
    try:
        while True:
            if not select.select([terminal], [], [], 2)[0]:
                # A key that comes between the question and the reading of its answer may be lost.
                os.write(terminal, sent.encode() if sent in KEYS else b"")
                continue
            if not (piece := os.read(terminal, 65536)):
                break
            output += piece.decode()
            if re.search(QUESTION.pattern + "$", output):
                output += "\n"
                sent = waiting.pop(0)
                os.write(terminal, sent.encode())
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert not waiting, output
    return os.waitstatus_to_exitcode(status), output.replace("\r\n", "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"a": TWICE, "b": SAVES, "c": LOADS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def counted(folder: Path) -> list[int]:
    """How many old calls each file has left."""
    old = re.compile(r"full_optim_state_dict\(|cuda\.amp\.autocast\(")
    return [len(old.findall((folder / f"{name}.py").read_text())) for name in "abc"]


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        (["y\n", "y\n", "y\n", "y\n"], [0, 0, 0]),
        (["n\n", "y\n", "n\n", "y\n"], [1, 1, 0]),
        (["a\n", "y\n"], [0, 0, 0]),
        (["s\n", "y\n"], [2, 1, 0]),
        (["d\n", "y\n", "n\n"], [2, 0, 1]),
        (["y\n", "q\n"], [1, 1, 1]),
        (["?\n", "nonsense\n", "e\n", "Y\n", "q\n"], [1, 1, 1]),
    ],
    ids=["each", "some", "all of a rule", "no rule", "no file", "quit", "words"],
)
def test_answers_decide_what_is_written(tree: Path, answers: list[str], left: list[int]) -> None:
    code, shown, asked = session(answers)
    assert counted(tree) == left
    assert code == int(any(left) or "FSDP210" in shown)
    assert asked == len(answers)


@pytest.mark.parametrize("last", ["q\r", *KEYS], ids=["quit", "end of input", "Ctrl-C"])
def test_leaving_keeps_what_was_said(tree: Path, last: str) -> None:
    code, shown = typed(tree, ["y\r", last])
    assert counted(tree) == [1, 1, 1]
    assert code == 1
    assert "Fixed 1 finding" in shown


def test_a_question_shows_the_finding_and_everything_that_changes_with_it(tree: Path) -> None:
    _, shown, _ = session(["q\n"])
    question = shown.partition("Make this fix")[0]
    assert "a.py:5:12: FSDP101" in question
    for line in ("--- a/a.py", "+    StateDictType,", "-    return FSDP.full_optim_state_dict(model, optim)"):
        assert line in question
    assert question.count("-    return") == 1
    assert "[y,n,i,a,s,d,e,q,?]" in shown


def test_a_session_ends_with_a_sentence_and_not_with_a_list(tree: Path) -> None:
    _, shown, _ = session(["y\n", "q\n"])
    assert shown.startswith("Looking for fixes in 3 files...\n")
    _, end, *_ = shown.rpartition("? ")[2].splitlines()
    assert end.startswith("Fixed 1 finding in 1 of 3 files; 3 findings left: 3 fixable")


def test_what_a_baseline_knows_is_not_asked_about_and_stays(tree: Path) -> None:
    lint = ["lint", "--torch", ">=2.4", "a.py", "b.py"]
    CliRunner().invoke(cli, [*lint, "--write-baseline", "known.json"], catch_exceptions=False)
    new = "\n\ndef third(model, optim):\n    return FSDP.full_optim_state_dict(model, optim)\n"
    (tree / "a.py").write_text(TWICE + new)
    code, shown, asked = session(["y\n", "y\n"], "--baseline", "known.json")
    assert asked == 2
    assert "a.py:13:12: FSDP101" in shown
    assert "b.py" not in shown
    assert (code, counted(tree)) == (0, [2, 1, 0])


def test_a_baseline_of_the_settings_holds(tree: Path) -> None:
    lint = ["lint", "--torch", ">=2.4", "."]
    CliRunner().invoke(cli, [*lint, "--write-baseline", "known.json"], catch_exceptions=False)
    (tree / "fsdp-migrate.toml").write_text('baseline = "known.json"\n')
    assert session([])[2] == 0
    assert counted(tree) == [2, 1, 1]


def test_explain_prints_the_card(tree: Path) -> None:
    _, shown, _ = session(["e\n", "q\n"])
    assert "FSDP101 full-optim-state-dict" in shown


def test_a_silenced_finding_gets_a_comment_and_is_not_told(tree: Path) -> None:
    _, shown, _ = session(["i\n", "y\n", "q\n"])
    text = (tree / "a.py").read_text()
    assert text.count("return FSDP.full_optim_state_dict(model, optim)  # noqa: FSDP101\n") == 1
    assert text.count("FSDP.optim_state_dict(model, optim)") == 1
    assert "a.py:5:12: FSDP101" not in shown.rpartition("Make this fix")[2]
    assert session(["q\n"], "--select", "FSDP101,FSDP002")[2] == 1  # only b.py is asked about


def test_unsafe_fixes_are_asked_about_one_by_one_and_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(UNSAFE)
    (tmp_path / "b.py").write_text(UNSAFE)
    assert session([])[2] == 0
    _, shown, asked = session(["a\n", "y\n", "n\n"], "--unsafe-fixes", "--select", "FSDP201")
    assert asked == 3  # `a` is no answer to an unsafe fix, so it lists those that are
    assert "[y,n,i,s,d,e,q,?]" in shown
    assert ["FullOptimStateDictConfig" in (tmp_path / f"{name}.py").read_text() for name in "ab"] == [True, False]


@pytest.mark.parametrize("answer", ["y", "n"])
def test_files_that_change_together_are_one_question(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    texts = {"a.py": "def old():\n    pass\n", "b.py": "from a import old\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(click, "prompt", lambda question, **_: asked.append(question) or answer)
    target = Renaming({"old": "new"})
    runner.rewrite(filesystem.discover("."), configuration(), write=True, chooser=interactive.Asking(), target=target)
    shown = capsys.readouterr().out
    assert len(asked) == 1
    assert "a/a.py" in shown
    assert "a/b.py" in shown
    assert "[y,n,a,s,d,e,q,?]" in asked[0]  # no comment silences a finding in several files
    wanted = {name: text.replace("old", "new") if answer == "y" else text for name, text in texts.items()}
    assert {name: (tmp_path / name).read_text() for name in texts} == wanted


def test_a_refusal_holds_while_other_changes_move_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("first = 1\nold = 2\n")
    (tmp_path / "b.py").write_text("from a import first, old\n")
    asked: list[str] = []
    monkeypatch.setattr(click, "prompt", lambda question, **_: asked.append(question) or "yn"[len(asked) - 1])
    target = Renaming({"first": "much_longer", "old": "new"})
    runner.rewrite(filesystem.discover("."), configuration(), write=True, chooser=interactive.Asking(), target=target)
    assert len(asked) == 2
    assert (tmp_path / "a.py").read_text() == "much_longer = 1\nold = 2\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("a.py",), "asks on a terminal"),
        (("--diff", "a.py"), "cannot be combined"),
        (("--check", "a.py"), "cannot be combined"),
        (("-",), "cannot be combined"),
        (("--output-format", "json", "--diff", "a.py"), "cannot be combined"),
    ],
)
def test_nobody_is_asked_in_a_pipe(tree: Path, options: tuple[str, ...], reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, "rewrite", "-i", *options],
        cwd=tree,
        env=ENVIRONMENT,
        input="y\n" * 9,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert counted(tree) == [2, 1, 1]
