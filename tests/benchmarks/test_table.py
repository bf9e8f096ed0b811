from __future__ import annotations

import sys

import pytest

from benchmarks.__main__ import _lines
from benchmarks.cases import OURS, Beyond, Row, Target
from benchmarks.measuring import Command, Cost, Failed, measured


def test_a_row_says_how_its_first_command_compares_and_whether_that_will_do() -> None:
    targets = (Target("peer", 2.0), Target("other", 0.5), Target("slow", 0.9, wall=True))
    row = Row("work", "3 files", {}, targets)
    costs = {
        OURS: Cost(0.4, 1.0, 30.0, 5),
        "peer": Cost(0.2, 0.2, 20.0, 5),
        "other": Cost(0.5, 1.0, 20.0, 5),
        "slow": Cost(0.1, 2.0, 20.0, 1),
    }
    ours, peer, other, slow = _lines(row, costs)
    assert ours == "| work (3 files) | fsdp-migrate | 0.400 | 1.00 | 30 |  |  |"
    assert peer.endswith("| 2 | 2: met |")
    assert other.endswith("| 0.8 | 0.5: not met |")
    assert slow.startswith("|  | slow (one run) |")
    assert slow.endswith("| 0.5 | 0.9 (wall): met |")


@pytest.mark.parametrize(("most", "met"), [(1.0, "met"), (0.5, "not met")])
def test_a_row_says_what_each_megabyte_takes_beyond_other_commands(most: float, met: str) -> None:
    row = Row("work", "2 MB", {}, beyond=Beyond(("lint", "import"), 2.0, most))
    costs = {OURS: Cost(2.0, 1, 1, 5), "lint": Cost(0.3, 1, 1, 5), "import": Cost(0.1, 1, 1, 5)}
    assert _lines(row, costs)[-1] == f"|  | a MB, beyond lint and import | 0.800 |  |  |  | {most:.3g} s: {met} |"


def test_what_a_command_costs_counts_its_own_children_and_not_its_preparation() -> None:
    prepared = []
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(3_000_000))'])"
    command = Command([sys.executable, "-c", code], prepare=lambda: prepared.append(1))
    cost = measured({"x": command}, runs=2)["x"]
    assert len(prepared) == 3
    assert cost.runs == 2
    assert cost.cpu > 0
    assert cost.wall > 0
    assert cost.memory > 1


def test_a_command_that_breaks_is_told_with_its_last_words() -> None:
    code = "import sys; print('no such option', file=sys.stderr); sys.exit(2)"
    with pytest.raises(Failed, match="ended with 2: no such option"):
        measured({"x": Command([sys.executable, "-c", code])}, runs=1)
