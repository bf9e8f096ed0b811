"""How the time of `lint` grows: with more files, and with a longer one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measuring import Command, measured

STEPS = (1, 2, 5, 10)


def growth(command: Callable[[Path], Command], tree: Path, work: Path, runs: int) -> dict[str, list[tuple[int, float]]]:
    """Cpu seconds by factor, for so many copies of a tree, and for one file that is so many times as long."""
    folder = work / "growth"
    shutil.rmtree(folder, ignore_errors=True)
    largest = max(tree.rglob("accelerator.py"), key=lambda path: path.stat().st_size)
    paths: dict[str, dict[int, Path]] = {"more files": {}, "a longer file": {}}
    for factor in STEPS:
        copies = folder / f"files-{factor}"
        for number in range(factor):
            shutil.copytree(tree, copies / f"copy_{number}", ignore=lambda _, names: set(names) - _kept(names))
        paths["more files"][factor] = copies
        longer = folder / f"long-{factor}" / "module.py"
        longer.parent.mkdir(parents=True)
        longer.write_text(largest.read_text() * factor)
        paths["a longer file"][factor] = longer
    found = {}
    for kind, by_factor in paths.items():
        costs = measured({str(factor): command(path) for factor, path in by_factor.items()}, runs)
        found[kind] = [(factor, costs[str(factor)].cpu) for factor in by_factor]
    return found


def _kept(names: Sequence[str]) -> set[str]:
    return {name for name in names if "." not in name or name.endswith((".py", ".toml"))}


def plot(found: dict[str, list[tuple[int, float]]], target: Path) -> None:
    """Draw both curves, with the line of a growth in proportion."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(9, 3.2), layout="constrained")
    for axis, (kind, points) in zip(axes, found.items()):
        factors, seconds = zip(*points)
        axis.plot(factors, [seconds[0] * factor for factor in factors], "--", color="0.6", label="in proportion")
        axis.plot(factors, seconds, "o-", label="fsdp-migrate lint")
        axis.set(title=kind, xlabel="times as much", ylabel="cpu seconds", xlim=0, ylim=0)
        axis.legend()
    figure.savefig(target, metadata={"Date": None})
