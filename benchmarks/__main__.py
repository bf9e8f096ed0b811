"""Compare fsdp-migrate with its neighbours, everything measured in the same run.

    python -m benchmarks                      all rows, five runs of each command
    python -m benchmarks --only lint-torch    one row
    python -m benchmarks --growth docs        growth alone, with a plot in that folder (needs matplotlib)

Environments and sources are downloaded once, into the folder of `--work`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from benchmarks.cases import OURS, Beyond, Cases, Row
from benchmarks.growth import growth, plot
from benchmarks.measuring import Command, Cost, Failed, measured

DEFAULT = Path(platformdirs.user_cache_dir("fsdp-migrate-benchmarks", appauthor=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table in Markdown; 1 when something could not be run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each command, besides one that does not count")
    parser.add_argument("--only", action="append", metavar="ROW", help="a row, or the start of its name; repeatable")
    parser.add_argument("--work", type=Path, default=DEFAULT, help=f"default: {DEFAULT}")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=FOLDER", help="sources that are here")
    parser.add_argument("--growth", type=Path, metavar="FOLDER", help="measure growth, draw it into this folder")
    given = parser.parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    trees = {name: Path(folder).resolve() for name, _, folder in (tree.partition("=") for tree in given.tree)}
    cases = Cases(given.work.resolve(), trees)
    print(_machine(), flush=True)
    try:
        if given.growth is not None:
            return _grow(cases, given.growth, given.runs)
        print("\n| work | command | cpu s | wall s | peak MB | ratio | target |\n|---|---|---|---|---|---|---|")
        for name, make in cases.rows():
            if not given.only or any(name.startswith(wanted) for wanted in given.only):
                row = make()
                print("\n".join(_lines(row, measured(row.commands, given.runs))), flush=True)
    except Failed as failed:
        print(f"error: {failed}", file=sys.stderr)
        return 1
    print(f"\nMedians of {given.runs} runs. Load of the machine at the end: {_load()}.")
    return 0


def _lines(row: Row, costs: dict[str, Cost]) -> list[str]:
    """A line for each command; the ratio is that of this program to it."""
    ours, lines = costs[OURS], []
    targets = {target.peer: target for target in row.targets}
    for name, cost in costs.items():
        target = targets.get(name)
        ratio = (
            (ours.wall / cost.wall if target is not None and target.wall else ours.cpu / cost.cpu) if cost.cpu else 0
        )
        wanted = (
            ""
            if target is None
            else f"{target.most:.3g}{' (wall)' * target.wall}: {'met' if ratio <= target.most else 'not met'}"
        )
        title = f"{row.title} ({row.size})" if cost is ours else ""
        shown = "" if cost is ours else f"{ratio:.3g}"
        once = " (one run)" if cost.runs == 1 else ""
        lines.append(
            f"| {title} | {name}{once} | {cost.cpu:.3f} | {cost.wall:.2f} | {cost.memory:.0f} | {shown} | {wanted} |"
        )
    if row.beyond is not None:
        lines.append(_beyond(row.beyond, costs))
    return lines


def _beyond(beyond: Beyond, costs: dict[str, Cost]) -> str:
    """The line for what this program takes for a unit of work beyond others."""
    seconds = (costs[OURS].cpu - sum(costs[peer].cpu for peer in beyond.peers)) / beyond.amount
    met = "met" if seconds <= beyond.most else "not met"
    what = f"a {beyond.unit}, beyond {' and '.join(beyond.peers)}"
    return f"|  | {what} | {seconds:.3f} |  |  |  | {beyond.most:.3g} s: {met} |"


def _grow(cases: Cases, folder: Path, runs: int) -> int:
    def lint(path: Path) -> Command:
        return cases.ours("lint", "--no-cache", "-j1", str(path))

    found = growth(lint, cases.tree("accelerate"), cases.work, runs)
    for kind, points in found.items():
        first = points[0][1]
        print(
            f"{kind}: "
            + ", ".join(f"{factor}x in {seconds / first:.1f}x ({seconds:.2f} s)" for factor, seconds in points)
        )
    plot(found, folder / "growth.svg")
    return 0


def _machine() -> str:
    cores = os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}, load {_load()}"
    )


def _load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


if __name__ == "__main__":
    raise SystemExit(main())
