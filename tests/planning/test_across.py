"""Transactions over several files: all of their files change or none does, whatever happens."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsdp_migrate import replacing, runner
from fsdp_migrate.findings import Applicability
from fsdp_migrate.report.output import Output
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.disk import digest
from tests.planning.renaming import Renaming, configuration, rewrite
from tests.torture.programs import ENVIRONMENT, run

TREE = {"a.py": "def old():\n    pass\n", "b/c.py": "from a import old\n", "d.py": "import a\n\na.old()\n"}
NEW = {path: text.replace("old", "new") for path, text in TREE.items()}
LEGACY = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nFSDP.full_optim_state_dict(m, o)\n"
OLD_TO_NEW = Renaming({"old": "new"})


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grow(TREE)


def grow(texts: dict[str, str]) -> None:
    for path, text in texts.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)


def tree() -> dict[str, str]:
    """The texts of all files there are, those that a run may have left among them."""
    found = (path for path in Path().rglob("*") if path.is_file() and "cache" not in path.parts)
    return {str(path): path.read_text() for path in found}


def failing(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, when: Callable[..., bool], code: int) -> None:
    """Make a function fail with a system's error where `when` is true of its arguments."""
    real = getattr(owner, name)

    def function(*arguments: object, **options: object) -> object:
        if when(*arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, function)


# --- what is made ------------------------------------------------------------------------------------------------


def test_all_files_change_and_the_finding_is_told_once() -> None:
    plan = rewrite(OLD_TO_NEW)
    assert tree() == NEW
    assert plan.changed == ("a.py", "b/c.py", "d.py")
    assert [(finding.path, finding.line, finding.code) for finding in plan.fixed] == [("a.py", 1, "FSDP990")]
    assert (plan.findings, plan.failures, plan.exit_code, plan.files_checked) == ((), (), 0, 3)


def test_the_fixes_of_single_files_find_the_new_texts() -> None:
    grow({"a.py": LEGACY.replace("m, o", "old, o"), "e.py": LEGACY})
    plan = rewrite(OLD_TO_NEW)
    assert "FSDP.optim_state_dict(new, o)" in tree()["a.py"]
    assert "full_optim_state_dict" not in tree()["e.py"]
    assert [(finding.path, finding.line, finding.code) for finding in plan.fixed] == [
        ("a.py", 3, "FSDP101"),
        ("a.py", 3, "FSDP990"),
        ("e.py", 3, "FSDP101"),
    ]


def test_transactions_that_one_makes_possible_are_made_too() -> None:
    rewrite(Renaming({"old": "newer", "newer": "newest"}))
    assert tree() == {path: text.replace("old", "newest") for path, text in TREE.items()}


def test_unsafe_ones_wait_to_be_asked_for() -> None:
    target = Renaming({"old": "new"}, Applicability.UNSAFE)
    plan = rewrite(target)
    assert (tree(), [finding.applicability.value for finding in plan.findings]) == (TREE, ["unsafe"])
    rewrite(target, unsafe_fixes=True)
    assert tree() == NEW


def test_a_comment_silences_one() -> None:
    grow({"a.py": "def old():  # noqa\n    pass\n"})
    before = tree()
    plan = rewrite(OLD_TO_NEW)
    assert (tree(), plan.findings, plan.suppressed) == (before, (), 1)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "new", "reason"),
    [
        ("old", "a b", "internal: the new text does not parse (invalid syntax"),
        ("old", "new(  # a comment\n)", "internal: the new text would lose or repeat the comment '# a comment'"),
        ("pass", "torch.load('x')", "not made: it would add FSDP841 (load-weights-only) to a.py"),
    ],
)
def test_one_with_a_bad_text_is_left_out_whole(word: str, new: str, reason: str) -> None:
    grow({"a.py": "import torch\nimport torch.distributed.fsdp\n\nold\npass\n", "d.py": "def old(): pass\n"})
    before = tree()
    plan = rewrite(Renaming({word: new}))
    assert tree() == before
    (finding,) = [finding for finding in plan.findings if finding.code == "FSDP990"]
    assert finding.applicability is Applicability.MANUAL
    assert (finding.reason or "").startswith(reason)


# --- writing -----------------------------------------------------------------------------------------------------


def test_one_file_that_cannot_be_written_keeps_all_as_they_are_and_the_other_fixes_are_made(tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text(TREE["d.py"])
    Path("d.py").unlink()
    Path("d.py").symlink_to(outside)
    grow({"b/c.py": TREE["b/c.py"] + LEGACY})
    plan = rewrite(OLD_TO_NEW)
    assert (Path("a.py").read_text(), outside.read_text()) == (TREE["a.py"], TREE["d.py"])
    assert Path("b/c.py").read_text().startswith(TREE["b/c.py"])
    assert "full_optim_state_dict" not in Path("b/c.py").read_text()
    assert [failure.path for failure in plan.failures] == ["d.py"]
    (finding,) = [finding for finding in plan.findings if finding.code == "FSDP990"]
    assert (finding.reason or "").startswith("not made: it also changes d.py (not rewritten:")
    assert plan.exit_code == 3


def test_what_has_no_part_in_it_is_made_when_another_file_of_the_group_cannot_be_written(tmp_path: Path) -> None:
    grow({"a.py": "one = 1\n", "b/c.py": "one = two = 2\n", "d.py": "two = 3\n"})
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    Path("d.py").rename(outside)
    Path("d.py").symlink_to(outside)
    rewrite(Renaming({"one": "uno", "two": "due"}))
    assert tree() == {"a.py": "uno = 1\n", "b/c.py": "uno = two = 2\n", "d.py": "two = 3\n"}


def test_a_file_that_is_edited_meanwhile_keeps_all_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    real = replacing.NewFile.take_place_of

    def edit_first(self: replacing.NewFile, target: str) -> None:
        if target.endswith("a.py"):  # the first: the others are edited after they were looked at for the last time
            Path("d.py").write_text("typed meanwhile\n")
        real(self, target)

    monkeypatch.setattr(replacing.NewFile, "take_place_of", edit_first)
    plan = rewrite(OLD_TO_NEW)
    assert tree() == TREE | {"d.py": "typed meanwhile\n"}
    assert [(one.path, one.message) for one in plan.failures] == [
        ("d.py", "not rewritten: it changed while fsdp-migrate was running; run again")
    ]


@pytest.mark.parametrize("full_at", ["third file", "journal", "second name", "second journal"])
def test_on_a_full_disk_nothing_is_half_done(full_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if full_at == "third file":
        writes: list[object] = []
        failing(monkeypatch, os, "write", lambda *_: len(writes) >= 2 or writes.append(1) or False, errno.ENOSPC)  # type: ignore[func-returns-value]
    elif full_at == "second name":
        failing(monkeypatch, os, "link", lambda _, name, **__: ".old" in str(name) and "b/" in name, errno.ENOSPC)
        failing(monkeypatch, replacing, "prepared", lambda _, new, **__: b"old" in new, errno.ENOSPC)
    else:
        folder = "b/" if full_at == "second journal" else ""
        failing(monkeypatch, os, "fsync", lambda fd: _is_journal(fd, folder), errno.ENOSPC)
    plan = rewrite(OLD_TO_NEW)
    assert tree() == TREE
    assert plan.exit_code == 3
    assert {one.message for one in plan.failures} == {"cannot be written: No space left on device"}


def _is_journal(descriptor: int, folder: str) -> bool:
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    return path.endswith(".journal") and folder in path


def test_a_rename_that_fails_takes_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    inode = os.stat("a.py").st_ino
    failing(monkeypatch, os, "replace", lambda _, target: target.endswith("d.py"), errno.EIO)
    plan = rewrite(OLD_TO_NEW)
    assert (tree(), os.stat("a.py").st_ino) == (TREE, inode)
    assert [(one.path, one.message) for one in plan.failures] == [("d.py", "cannot be written: Input/output error")]


# --- files that there are not yet --------------------------------------------------------------------------------

CREATING = Renaming({"old": "new"}, creates={"b/made.py": "made = True\n"})
CREATED = NEW | {"b/made.py": "made = True\n"}


def test_a_file_is_created_with_the_change_that_needs_it() -> None:
    plan = rewrite(CREATING)
    assert tree() == CREATED
    assert [(one.path, one.created) for one in plan.changes] == [
        ("a.py", False), ("b/c.py", False), ("b/made.py", True), ("d.py", False)
    ]  # fmt: skip


def test_no_file_takes_the_place_of_another() -> None:
    grow({"b/made.py": "mine = True\n"})
    plan = rewrite(CREATING)
    assert tree() == TREE | {"b/made.py": "mine = True\n"}
    assert [one.reason for one in plan.findings] == ["not made: it would create b/made.py, which exists already"]


def test_a_file_that_appears_meanwhile_keeps_all_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def appear_first(self: replacing.NewFile, target: str) -> None:
        Path("b/made.py").write_text("mine = True\n")
        real(self, target)

    real = replacing.NewFile.take_place_of
    monkeypatch.setattr(replacing.NewFile, "take_place_of", appear_first)
    plan = rewrite(CREATING)
    assert tree() == TREE | {"b/made.py": "mine = True\n"}
    assert [one.reason for one in plan.findings] == ["not made: it would create b/made.py, which exists already"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_the_run_after_a_kill_finishes_what_creates_a_file(tmp_path: Path, place: int) -> None:
    ended("SIGKILL", place, "b/made.py")
    assert run(tmp_path, "rewrite", "b").stderr.startswith("finished the change to a.py, b/c.py, b/made.py and d.py")
    assert tree() == CREATED


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_the_run_after_a_kill_takes_back_a_file_that_was_created(tmp_path: Path) -> None:
    ended("SIGKILL", 4, "b/made.py")
    assert Path("b/made.py").exists()
    Path("d.py").write_text("typed meanwhile\n")
    assert run(tmp_path, "rewrite", "a.py").stderr.startswith("rolled back the change to")
    assert tree() == TREE | {"d.py": "typed meanwhile\n"}


def test_git_applies_a_diff_that_creates_a_file(tmp_path: Path) -> None:
    discovery = filesystem.discover(["."])
    plan = runner.rewrite(discovery, configuration(), write=False, target=CREATING)
    assert tree() == TREE
    Output("text", "made.patch", True).preview(plan, diff=True)
    subprocess.run(["git", "apply", "made.patch"], check=True)
    Path("made.patch").unlink()
    assert tree() == CREATED


# --- being ended -------------------------------------------------------------------------------------------------


def ended(name: str, place: int, *creates: str) -> subprocess.CompletedProcess[str]:
    """A run that gets a signal when its file number `place` is renamed."""
    command = [sys.executable, "-m", "tests.planning.renaming", name, str(place), *creates]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_run_after_a_kill_finishes_in_one_line(tmp_path: Path, place: int) -> None:
    assert ended("SIGKILL", place).returncode == -signal.SIGKILL
    assert sum(text in NEW.values() for text in tree().values()) >= place - 1
    after = run(tmp_path, "rewrite", "b")
    assert after.stderr == "finished the change to a.py, b/c.py and d.py, which a killed run had begun\n"
    assert tree() == NEW
    assert run(tmp_path, "rewrite", ".").stderr == ""


def test_the_run_after_a_kill_takes_back_what_it_cannot_finish(tmp_path: Path) -> None:
    ended("SIGKILL", 2)
    Path("d.py").write_text("typed meanwhile\n")
    after = run(tmp_path, "rewrite", "a.py")
    assert after.stderr == "rolled back the change to a.py, b/c.py and d.py, which a killed run had begun\n"
    assert tree() == TREE | {"d.py": "typed meanwhile\n"}


def test_a_tree_that_was_moved_after_a_kill_is_finished_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for name in ("a.py", "b", "d.py"):
        (tmp_path / name).rename(tmp_path / "inside" / name)
    os.chdir(tmp_path / "inside")
    ended("SIGKILL", 2)
    (tmp_path / "inside").rename(tmp_path / "moved")
    assert run(tmp_path, "rewrite", "moved").stderr.startswith("finished the change to moved/a.py, moved/b/c.py and")
    os.chdir(tmp_path / "moved")
    assert tree() == NEW


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize(
    ("name", "code", "more"), [("SIGTERM", -15, ""), ("SIGINT", 130, "written: a.py b/c.py d.py\n")]
)
def test_a_signal_waits_until_the_change_is_whole(name: str, code: int, more: str) -> None:
    done = ended(name, 2)
    assert tree() == NEW
    assert done.stdout == "interrupted: the change to a.py, b/c.py and d.py was finished\n" + more
    assert done.returncode == code


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1, "files": [["../x", "y", "z", "1"]]}', '{"version": 2}']
)
def test_a_journal_that_tells_nothing_is_cleared_away(tmp_path: Path, text: str) -> None:
    grow({".fsdp-migrate-0.journal": text})
    after = run(tmp_path, "rewrite", ".")
    assert (after.stderr, tree()) == ("", TREE)


def test_a_journal_changes_no_file_whose_folder_has_none(tmp_path: Path) -> None:
    grow({".fsdp-migrate-1.tmp": "x", "b/.fsdp-migrate-1.tmp": "x"})
    row = ["../d.py", "../.fsdp-migrate-1.tmp", "../.fsdp-migrate-1.old", digest(b"x"), digest(TREE["d.py"].encode())]
    grow({"b/.fsdp-migrate-1.journal": json.dumps({"version": 1, "files": [row]})})
    assert run(tmp_path, "rewrite", ".").stderr == ""
    assert {path: text for path, text in tree().items() if path.endswith(".py")} == TREE
