"""The parent of forked ranks notices what their own alarm clocks do not tell."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from fsdp_migrate.verify.worker import fork, protocol
from fsdp_migrate.verify.worker.protocol import LaunchPlan


def test_ranks_that_tell_nothing_for_too_long_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(fork.time, "monotonic", lambda: clock[0])
    plan = LaunchPlan((), world=2, device="cpu", timeout=10, group_timeout=5, folder=str(tmp_path))
    ranks = fork._Round(plan, tmp_path / "store")
    clock[0] += 19
    protocol.append(protocol.record_file(tmp_path, 1), {"event": "start"})
    assert not ranks._quiet()
    clock[0] += 19
    assert not ranks._quiet()
    clock[0] += 2
    assert ranks._quiet()


def test_a_rank_says_itself_why_it_leaves_and_its_exit_code_does_not(tmp_path: Path) -> None:
    assert protocol.take_leaving(tmp_path, 0) is None
    protocol.note_leaving(tmp_path, 0, protocol.FINISHED)
    assert protocol.take_leaving(tmp_path, 1) is None
    assert [protocol.take_leaving(tmp_path, 0) for _ in range(2)] == [protocol.FINISHED, None]
