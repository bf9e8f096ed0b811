"""How programs end, and what is left of them: nothing."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsdp_migrate.prove.launch import LaunchError
from tests.prove.launched import Launched, launched
from tests.prove.test_copies import git
from tests.test_process import ENVIRONMENT
from tests.verify.test_processes import processes, wait_for

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

TRAINING = """
import concurrent.futures, itertools, os, sys, time, torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pool = concurrent.futures.ThreadPoolExecutor(1)

def save(step):
    time.sleep(0.5)
    torch.save(model.state_dict(), f"{step}.pt")

for step in itertools.count(1):
    for micro in (1, 2):
        batch = torch.ones(2, 3, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, batch, use_reentrant=True).sum().backward()
    optimizer.step()
    pool.submit(save, step)
    if os.fork() == 0:
        optimizer.step()
        os._exit(0)
"""
HANGING = """
import time
def waits(): time.sleep(1000)
waits()
"""
SPAWNING = """
import multiprocessing, os, torch.distributed as dist
def rank(number):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK=str(number), WORLD_SIZE="1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=rank, args=(0,))
    child.start()
    child.join()
    os._exit(0)
"""
LEAVING = """
import os, sys, time
if os.fork():
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
time.sleep(1000)
"""
RAISING = """
import os, subprocess, sys
subprocess.Popen(["sleep", "1000"], start_new_session=True)
def fails(): raise ValueError("no GPU here")
if os.environ["RANK"] == "1":
    fails()
import time
time.sleep(1000)
"""
KILLED = """
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""
PROGRAMS = {
    "training": (TRAINING, {"steps": 3}),
    "hanging": (HANGING, {"timeout": 20}),
    "spawning": (SPAWNING, {}),
    "leaving": (LEAVING, {}),
    "raising": (RAISING, {"nproc": 2}),
    "killed": (KILLED, {}),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Launched]:
    folder = tmp_path_factory.mktemp("ends")
    with ThreadPoolExecutor(2) as pool:
        started = {name: pool.submit(launched, folder / name, text, **more) for name, (text, more) in PROGRAMS.items()}
        return {name: future.result() for name, future in started.items()}


def test_all_processes_are_gone(ran: dict[str, Launched]) -> None:
    for made in ran.values():
        assert processes(str(made.home.plan)) == []


def test_a_run_of_some_steps_stops_before_the_next_backward_with_everything_that_came_until_then(
    ran: dict[str, Launched],
) -> None:
    made = ran["training"]
    assert made.run.problems == ()
    assert [event.data["reason"] for event in made.events(0, "end")] == ["steps"]
    # Two roots for each step: not those of the checkpointed function inside, and none of a forked process.
    assert len(made.events(0, "loss")) == 6
    assert made.run.steps == 3
    assert len(made.events(0, "final")) == 2
    # Writing goes on in a thread.
    assert [event.data["path"] for event in made.events(0, "save")] == ["1.pt", "2.pt", "3.pt"]
    assert sorted(path.name for path in made.home.copy.glob("*.pt")) == ["1.pt", "2.pt", "3.pt"]


def test_a_program_that_hangs_leaves_its_stacks(ran: dict[str, Launched]) -> None:
    made = ran["hanging"]
    assert made.run.timed_out
    assert "in waits" in made.run.ranks[0].stacks
    assert made.run.ranks[0].exit is None


def test_ranks_that_a_program_starts_itself_are_named(ran: dict[str, Launched]) -> None:
    assert ran["spawning"].run.problems[0].startswith("the program starts ranks of its own, which are not recorded:")


def test_a_program_may_leave_at_once(ran: dict[str, Launched]) -> None:
    assert [event.data["reason"] for event in ran["spawning"].events(0, "end")] == ["finished"]


def test_what_a_program_leaves_behind_in_place_of_training_is_named(ran: dict[str, Launched]) -> None:
    told = "the program left a process behind, stopped now: what it does in the background is not recorded"
    assert ran["leaving"].run.problems[0] == told


def test_an_error_is_recorded_with_its_traceback_and_the_other_rank_was_stopped(ran: dict[str, Launched]) -> None:
    made = ran["raising"]
    (error,) = made.events(1, "error")
    assert (error.data["type"], error.data["text"]) == ("ValueError", "no GPU here")
    assert 'raise ValueError("no GPU here")' in error.data["traceback"]
    assert error.at is not None
    assert error.at.path == "program.py"
    assert made.run.ranks[1].exit == 1
    assert made.run.ranks[0].exit is None


def test_a_killed_rank_tells_its_signal(ran: dict[str, Launched]) -> None:
    assert ran["killed"].run.ranks[0].exit == -signal.SIGKILL


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"no rank was started: ") as caught:
        launched(tmp_path, "", nproc=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_prove_leaves_no_process_and_no_folder(number: signal.Signals, code: int, tmp_path: Path) -> None:
    tree, temporary = tmp_path / "tree", tmp_path / "temporary"
    tree.mkdir()
    temporary.mkdir()
    (tree / "program.py").write_text(
        f"open({str(tmp_path / 'runs')!r}, 'w').close()\n{RAISING.split('def')[0]}{HANGING}"
    )
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "one")
    (tree / "new.py").write_text("")
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdp_migrate", "prove", "--nproc", "1", "--", "program.py"],
        cwd=tree,
        env={**ENVIRONMENT, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((tmp_path / "runs").exists)
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (code, "interrupted; every rank has been stopped\n")
    assert processes(str(temporary)) == []
    assert list(temporary.iterdir()) == []


WORKPLACE = """
import sys, time
from pathlib import Path
from fsdp_migrate.prove.launch import PLAN_VARIABLE, workplace
import os, subprocess
with workplace() as folder:
    plan = f"{folder}/run/plan.json"
    subprocess.Popen(["sleep", "1000"], env={**os.environ, PLAN_VARIABLE: plan}, start_new_session=True)
    print(folder, flush=True)
    time.sleep(1000)
"""


def test_nothing_is_left_where_prove_itself_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKPLACE],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = process.stdout.readline().strip()
    assert len(processes(folder)) == 2  # one that waits for the end, too
    process.kill()
    process.communicate()
    wait_for(lambda: not processes(folder) and not list(tmp_path.iterdir()))
