"""Torch's elastic launcher, which GPUs and several machines use, on the CPU of this one."""

from __future__ import annotations

import importlib.util
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsdp_migrate.verify import Outcome, Rendezvous, RunSettings, find_fixtures, verify
from tests.verify.programs import FAILING, FINE, SAVE_OLD, TRAINED, Caught

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

ONCE = [case for case in FAILING if case.name in ("segfault", "one-rank-raises")]
GONE = Caught("gone", SAVE_OLD, TRAINED + "    if trial.rank: os.kill(os.getpid(), signal.SIGKILL)\n", "CRASH", "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    for program in [*ONCE, GONE, FINE]:
        (folder / program.name).mkdir()
        for name, text in program.files().items():
            (folder / program.name / name).write_text(
                text.replace("# expect", "# needs: use_orig_params=True\n# expect")
            )
    return folder


def on_machine(number: int, port: int, cases: Path) -> Outcome:
    rendezvous = Rendezvous(nnodes=2, node_rank=number, endpoint=f"127.0.0.1:{port}")
    outcome = verify(find_fixtures([cases]), RunSettings(nproc=1, device="cpu", rendezvous=rendezvous))
    outcome.results = [result for result in outcome.results if result.axis.use_orig_params]
    return outcome


def died_here(outcome: Outcome) -> bool:
    """False, which sorts first, for the machine that rank 1 ran on."""
    return not any("Segmentation" in result.judgement.detail for result in outcome.results)


def test_two_machines_report_the_same_and_go_on_after_a_crash(cases: Path) -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as machines:
        outcomes = list(machines.map(lambda number: on_machine(number, port, cases), range(2)))
    for outcome in outcomes:
        assert outcome.errors == []
        assert [(run.world, run.device) for run in outcome.runs] == [(2, "cpu")]
    here, there = [
        {r.fixture.before.parent.name: (r.verdict.value, r.judgement.detail.split("\n")[0]) for r in outcome.results}
        for outcome in sorted(outcomes, key=died_here)
    ]
    # What became of a rank is known on its own machine only.
    assert here["gone"] == ("CRASH", "after.py: rank 1 is gone, without a message")
    assert here["segfault"] == ("CRASH", "after.py: rank 1 died: Segmentation fault")
    assert there["gone"] == ("HANG", "after.py: rank 1 did not finish")
    assert there["segfault"][0] in ("CRASH", "HANG")
    for told in (here, there):
        assert told["one-rank-raises"][0] == "DESYNC"
        assert told["one-rank-raises"][1].startswith("after.py: rank 1 raised ValueError: boom; rank 0 raised ")
        assert told["zz-fine"] == ("SAME", "")
