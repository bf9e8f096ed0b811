"""Files that FSDP1 programs wrote on two ranks: what is said of them, and training that goes on from converted ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.checkpoint import CheckpointError, inspect
from fsdp_migrate.checkpoint.contents import Format
from fsdp_migrate.checkpoint.conversion import Wish, convert
from fsdp_migrate.checkpoint.layout import Keys, Layout, parts
from tests.test_process import ENVIRONMENT

ORIG = (True, False)


def trained(*jobs: str) -> list[list[dict[str, Any]]]:
    """What each rank of each job observed."""
    command = [sys.executable, "-m", "tests.checkpoint.trainer", *jobs]
    environment = ENVIRONMENT | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The folder of an FSDP1 program, by its use_orig_params."""
    folders = {orig: tmp_path_factory.mktemp(f"orig-{orig}") for orig in ORIG}
    trained(*(f"write,{orig},{folder}" for orig, folder in folders.items()))
    return folders


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a program observes that saves and goes on."""
    (answer,) = trained(f"write,True,{tmp_path_factory.mktemp('unbroken')}")
    assert [rank["steps"] for rank in answer] == [[6.0], [6.0]]
    return answer


LAYOUTS = [
    ("full.pt", (True, False), (Layout.FULL, None), (Layout.FULL, Keys.NAME)),
    ("sharded", (True, False), (Layout.SHARDED, None), (Layout.SHARDED, Keys.NAME)),
    ("sharded-0.pt", (True, False), (Layout.SHARDED, None), (Layout.SHARDED, Keys.NAME)),
    ("local-1.pt", (True,), (Layout.SHARDED, None), (Layout.LOCAL, Keys.NUMBER)),
    ("local-1.pt", (False,), (Layout.LOCAL, None), (Layout.LOCAL, Keys.NUMBER)),
]


@pytest.mark.parametrize(("name", "origs", "model", "optimizer"), LAYOUTS)
def test_the_layout_of_what_fsdp_writes(
    written: dict[bool, Path], name: str, origs: tuple[bool, ...], model: Any, optimizer: Any
) -> None:
    for orig in origs:
        found = [(part.layout, part.keys) for part in parts(inspect(str(written[orig] / name)))]
        assert found == [model, optimizer]


def test_a_full_file_of_flat_parameters_shares_a_step_for_each_unit(written: dict[bool, Path]) -> None:
    _, optimizer = parts(inspect(str(written[False] / "full.pt")))
    unit = [f"{name}.step" for name in ("0.weight", "0.bias", "2.weight", "2.bias")]
    assert sorted(map(sorted, optimizer.shared)) == sorted(
        map(sorted, [["2.weight.step", "2.bias.step"], [f"0.{name}" for name in unit], [f"1.{name}" for name in unit]])
    )
    _, original = parts(inspect(str(written[True] / "full.pt")))
    assert original.shared == ()


@pytest.mark.parametrize("orig", ORIG)
@pytest.mark.parametrize("name", ["sharded-0.pt", "local-0.pt"])
def test_one_ranks_part_is_not_converted(written: dict[bool, Path], tmp_path: Path, name: str, orig: bool) -> None:
    with pytest.raises(CheckpointError, match="the part of one rank: run the program that wrote it again"):
        convert(str(written[orig] / name), Wish(str(tmp_path / "new")), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_training_goes_on_bit_for_bit_from_what_was_converted(
    written: dict[bool, Path], unbroken: list[dict[str, Any]], tmp_path: Path
) -> None:
    jobs = []
    for orig, folder in written.items():
        as_folder, as_file, again = (tmp_path / f"{name}-{orig}" for name in ("dcp", "full", "again"))
        convert(str(folder / "full.pt"), Wish(str(as_folder)), lambda _: None)
        convert(str(folder / "sharded"), Wish(str(as_file)), lambda _: None)
        convert(str(folder / "full.pt"), Wish(str(again), Format.FULL), lambda _: None)
        for path in (as_folder, as_file, again):
            jobs += [f"old,{orig},{path}", f"old,{not orig},{path}", f"new,{orig},{path}", f"fsdp2,-,{path}"]
    assert dict(zip(jobs, trained(*jobs))) == dict.fromkeys(jobs, unbroken)


def test_the_shared_step_of_an_old_file_breaks_training_that_a_conversion_mends(
    written: dict[bool, Path], unbroken: list[dict[str, Any]], tmp_path: Path
) -> None:
    old, new = written[False] / "full.pt", tmp_path / "new.pt"
    convert(str(old), Wish(str(new), Format.FULL), lambda _: None)
    jobs = [f"{how},{path}" for how in ("fsdp2,-", "new,True", "old,True") for path in (old, new)]
    answers = trained(*jobs)
    assert answers[1::2] == [unbroken] * 3
    for broken in answers[::2]:
        # The losses agree at first: nothing shows it.
        assert [rank["losses"][0] for rank in broken] == [rank["losses"][0] for rank in unbroken]
        assert [rank["losses"][1:] for rank in broken] != [rank["losses"][1:] for rank in unbroken]
        assert max(max(rank["steps"]) for rank in broken) > 6.0
