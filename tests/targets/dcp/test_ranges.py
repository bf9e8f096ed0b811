"""The torch range of a run with the target, and where the target is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdp_migrate.commands.cli import cli
from fsdp_migrate.rules.index import ENTRIES, OF_TARGETS

PROGRAM = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType

def state(model):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return model.state_dict()
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "save.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_where_nobody_states_a_range_the_target_has_one_and_says_so() -> None:
    result = run("lint", "--target", "dcp", "--no-cache", ".")
    assert result.exit_code == 1
    assert "torch>=2.4 is assumed for --target dcp" in result.output
    assert "[deprecated, fixable]" in result.output


def test_a_stated_range_that_is_too_old_is_one_line(folder: Path) -> None:
    (folder / "requirements.txt").write_text("torch>=2.1\n")
    (folder / "load.py").write_text(PROGRAM.replace("return model.state_dict()", "model.load_state_dict({})"))
    result = run("lint", "--target", "dcp", "--no-cache", ".")
    assert result.output.count("requirements.txt requires torch>=2.1") == 1
    assert "pass --torch '>=2.4' to see what it fixes" in result.output
    assert result.output.count("manual: the replacement needs torch>=") == 2
    told = run("lint", "--target", "dcp", "--no-cache", "--torch", ">=2.4", ".")
    assert "2 fixable" in told.output


def test_the_configuration_may_state_the_target(folder: Path) -> None:
    (folder / "fsdp-migrate.toml").write_text('target = "dcp"\n')
    assert "[deprecated, fixable]" in run("lint", "--no-cache", ".").output
    settings = json.loads(run("config", "--output-format", "json").output)["settings"]
    assert settings["target"]["value"] == "dcp"
    assert settings["torch"]["value"] == ">=2.4"
    assert run("rewrite", ".").exit_code == 0
    assert (
        "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
        in (folder / "save.py").read_text()
    )


def test_a_target_is_part_of_what_the_cache_knows(folder: Path) -> None:
    cache = ("--cache-dir", str(folder / "cache"))
    assert run("lint", *cache, "save.py").exit_code == 0
    assert run("lint", *cache, "--target", "dcp", "save.py").exit_code == 1
    assert run("lint", *cache, "save.py").exit_code == 0


def test_no_other_target_is_known() -> None:
    result = run("lint", "--target", "fsdp3", ".")
    assert result.exit_code == 2
    assert "'fsdp3' is not one of 'dcp', 'fsdp2'" in result.output


def test_every_rule_of_a_target_stands_for_one_that_there_is() -> None:
    names = {entry.code: entry.name for entry in ENTRIES}
    for entries in OF_TARGETS.values():
        for entry in entries:
            assert names[entry.code] == entry.name
            assert entry.load().card.code == entry.code
            assert set(entry.words) >= set(next(one.words for one in ENTRIES if one.code == entry.code))
