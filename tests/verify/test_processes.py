"""Nothing is left behind, and one dead rank does not take the other scenarios along."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.verify.programs import FINE, SAVE_OLD, TRAINED, Caught

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)
if not Path("/proc/self/environ").exists():
    pytest.skip("needs /proc to look for processes", allow_module_level=True)

MARK = "FSDP_MIGRATE_TEST_FOLDER"
SLEEP_ONCE = """
    import subprocess; subprocess.Popen(["sleep", "1000"], start_new_session=True)
    told = os.path.join(os.environ["FSDP_MIGRATE_TEST_FOLDER"], f"pid{trial.rank}")
    if not os.path.exists(told):
        with open(told + ".new", "w") as file: file.write(str(os.getpid()))
        os.replace(told + ".new", told)
        time.sleep(1000)
    trial.observe("osd", {})
"""
SLEEPS = Caught("a-sleeps", SAVE_OLD, TRAINED + SLEEP_ONCE, "CRASH", "")


def write(programs: list[Caught], folder: Path) -> Path:
    for program in programs:
        case = folder / "cases" / program.name
        case.mkdir(parents=True)
        for name, text in program.files().items():
            (case / name).write_text(text)
    return folder / "cases"


def processes(mark: str) -> list[int]:
    """Every process that works in, or was told about, a path below `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in told and state != "Z":
            found.append(int(entry.name))
    return found


def wait_for(condition: Callable[[], object], seconds: float = 120) -> object:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come about")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The harness in a process of its own, all its temporary files below `tmp_path`, both ranks asleep."""
    cases = write([SLEEPS, FINE], tmp_path)
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdp_migrate.verify", str(cases), "--device", "cpu", "--output-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), MARK: str(tmp_path)},
        start_new_session=True,
    )
    try:
        wait_for(lambda: (tmp_path / "pid0").exists() and (tmp_path / "pid1").exists())
        yield process
    finally:
        for pid in processes(str(tmp_path)):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_stopping_it_leaves_no_process_and_no_file(
    number: signal.Signals, code: int, running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.send_signal(number)
    _, told = running.communicate(timeout=300)
    assert (running.returncode, told) == (code, "interrupted; every rank has been stopped\n")
    assert processes(str(tmp_path)) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_killing_it_leaves_no_process_and_no_file_either(running: subprocess.Popen[str], tmp_path: Path) -> None:
    running.kill()
    running.wait()
    wait_for(lambda: not processes(str(tmp_path)))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_killed_rank_is_a_crash_and_the_rest_is_reported(running: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(int((tmp_path / "pid1").read_text()), signal.SIGKILL)
    told, _ = running.communicate(timeout=300)
    results = {(r["fixture"], r["axis"]["use_orig_params"]): r for r in json.loads(told)["results"]}
    killed = results.pop(("cases/a-sleeps", False))
    # The pair differs; what matters is that only the killed one is a crash, also after its second run.
    assert (killed["verdict"], killed["detail"].splitlines()[0]) == ("CRASH", "after.py: rank 1 was ended by SIGKILL")
    assert {key: r["verdict"] for key, r in results.items()} == {
        ("cases/a-sleeps", True): "DIFFERS",
        ("cases/zz-fine", False): "SAME",
        ("cases/zz-fine", True): "SAME",
    }
    assert processes(str(tmp_path)) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_launch_that_is_killed_is_begun_anew_with_what_is_left(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    rank = int((tmp_path / "pid1").read_text())
    launch = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(launch, signal.SIGKILL)
    told, _ = running.communicate(timeout=300)
    results = {(r["fixture"], r["axis"]["use_orig_params"]): r["verdict"] for r in json.loads(told)["results"]}
    assert results == {
        ("cases/a-sleeps", False): "CRASH",
        ("cases/a-sleeps", True): "DIFFERS",
        ("cases/zz-fine", False): "SAME",
        ("cases/zz-fine", True): "SAME",
    }
    assert processes(str(tmp_path)) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(("before", "within"), [("SIG_DFL", "stop"), ("SIG_IGN", "SIG_IGN")])
def test_a_closing_terminal_stops_it_unless_it_was_told_to_ignore_that(before: str, within: str) -> None:
    code = (
        "import signal\nfrom fsdp_migrate.verify.stopping import stoppable\n"
        f"signal.signal(signal.SIGHUP, signal.{before})\n"
        "with stoppable(): print(repr(signal.getsignal(signal.SIGHUP)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert within in done.stdout
