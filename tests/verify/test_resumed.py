"""A program saves, and goes on from what it saved on as many ranks and on more: before and after `--target dcp`.

What either writes either reads, files of `torch.save` and folders of the distributed checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from fsdp_migrate.checkpoint import dcp_folder
from fsdp_migrate.checkpoint.pickles import Opened
from fsdp_migrate.planning.rewriting import rewrite_bytes
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.settings import Settings

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

PROGRAM = Path(__file__).with_name("resumed.py")
SIDES = ("old", "new")
KINDS = ("file", "folder")
# As many ranks as saved, and more.
RANKS = (2, 4)
SAVED = [(kind, side, orig) for kind, side, orig in product(KINDS, SIDES, (False, True))]


class Run(NamedTuple):
    """A resumed training: what it reads, the side that wrote it and the side that reads it, and on how many ranks."""

    kind: str
    wrote: str
    reads: str
    orig: bool
    ranks: int


RUNS = [Run(*values) for values in product(KINDS, SIDES, SIDES, (False, True), RANKS)]
Losses = list[list[float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resumed")


@pytest.fixture(scope="module")
def programs(folder: Path) -> dict[str, Path]:
    settings = Settings(torch=TorchRange.parse(">=2.9"), target="dcp", unsafe_fixes=True)
    rewritten = rewrite_bytes(PROGRAM.read_bytes(), PROGRAM.name, settings)
    assert rewritten.error is None
    (folder / "new.py").write_bytes(rewritten.raw)
    return {"old": PROGRAM, "new": folder / "new.py"}


@pytest.fixture(scope="module")
def losses(folder: Path, programs: dict[str, Path]) -> dict[tuple[str, str, bool] | Run, Losses]:
    """The losses of each rank, by what was saved and by what was resumed."""

    def job(command: str, side: str, kind: str, wrote: str, orig: bool) -> tuple[str, str, bool, str]:
        return (str(programs[side]), f"{command}_{kind}", orig, str(saved_at(folder, kind, wrote, orig)))

    by_ranks = {ranks: [run for run in RUNS if run.ranks == ranks] for ranks in RANKS}
    launches = [
        (2, [job("save", side, kind, side, orig) for kind, side, orig in SAVED]),
        *(
            (ranks, [job("resume", run.reads, run.kind, run.wrote, run.orig) for run in runs])
            for ranks, runs in by_ranks.items()
        ),
    ]
    (folder / "jobs.json").write_text(json.dumps(launches))
    command = [sys.executable, "-m", "tests.verify.resuming", str(folder / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    return dict(zip([*SAVED, *(run for runs in by_ranks.values() for run in runs)], lines, strict=True))


def saved_at(folder: Path, kind: str, side: str, orig: bool) -> Path:
    return folder / f"{kind}-{side}-{orig}"


def test_nothing_of_the_old_calls_is_left(programs: dict[str, Path]) -> None:
    text = programs["new"].read_text()
    assert [word for word in ("StateDictType", "optim_state_dict_to_load", "save_state_dict(") if word in text] == []
    assert text.count("set_optimizer_state_dict(model, optim, ") == 2


def test_old_and_new_train_alike_up_to_the_save(losses: dict[tuple[str, str, bool] | Run, Losses]) -> None:
    assert len({json.dumps(losses[saved]) for saved in SAVED}) == 1


@pytest.mark.parametrize("orig", [False, True])
def test_a_folder_has_the_same_files_and_keys(orig: bool, folder: Path, losses: object) -> None:
    folders = [saved_at(folder, "folder", side, orig) for side in SIDES]
    assert len({tuple(sorted(file.name for file in one.iterdir())) for one in folders}) == 1
    keys = [sorted(dcp_folder.read(str(one), Opened()).flat) for one in folders]
    assert keys[0] == keys[1]
    assert "optim.state.0.0.weight.exp_avg" in keys[0]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))
def test_what_either_wrote_either_reads(run: Run, losses: dict[tuple[str, str, bool] | Run, Losses]) -> None:
    expected = losses[run._replace(wrote="old", reads="old")]
    assert len(expected) == run.ranks
    assert [len(steps) for steps in expected] == [3] * run.ranks
    assert losses[run] == expected


@pytest.mark.parametrize("orig", [False, True])
def test_more_ranks_go_on_as_fewer_do(orig: bool, losses: dict[tuple[str, str, bool] | Run, Losses]) -> None:
    on_two, on_four = (losses[Run("folder", "old", "new", orig, ranks)][0] for ranks in RANKS)
    before = losses["folder", "new", orig][0]
    assert on_four == pytest.approx(on_two, rel=1e-5)
    assert before[-1] > on_two[0] > on_two[-1]
