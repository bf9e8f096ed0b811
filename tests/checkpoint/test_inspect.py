"""What `checkpoint inspect` says of files that torch writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint as dcp

from fsdp_migrate.checkpoint import inspect
from fsdp_migrate.checkpoint.layout import Keys, Kind, Layout, parts
from fsdp_migrate.checkpoint.report import document, lines
from tests.test_process import ENVIRONMENT


def trained(prefix: str = "") -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optim = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optim.step()
    return {
        "model": {prefix + name: value for name, value in model.state_dict().items()},
        "optimizer": optim.state_dict(),
        "epoch": 3,
    }


def by_name(state: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The optimizer of `trained` as FSDP and DCP have it."""
    names = [prefix + name for name in ("0.weight", "0.bias", "1.weight", "1.bias")]
    (group,) = state["optimizer"]["param_groups"]
    entries = {names[number]: value for number, value in state["optimizer"]["state"].items()}
    return {**state, "optimizer": {"state": entries, "param_groups": [{**group, "params": names}]}}


def save_dcp(state: dict[str, Any], folder: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), planner=dcp.DefaultSavePlanner(**options))
    return folder


def save(state: Any, file: Path, **options: Any) -> Path:
    torch.save(state, file, **options)
    return file


def text(path: Path) -> str:
    return "\n".join(lines(inspect(str(path))))


def test_a_file_has_a_model_and_an_optimizer_by_number(tmp_path: Path) -> None:
    contents = inspect(str(save(trained(), tmp_path / "a.pt")))
    model, optim = parts(contents)
    assert (model.kind, model.layout, model.name) == (Kind.MODEL, Layout.FULL, "model")
    assert model.names == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert (model.tensors, model.nbytes) == (4, (3 * 4 + 4 + 4 * 2 + 2) * 4)
    assert (optim.kind, optim.keys, optim.layout, optim.tensors) == (Kind.OPTIMIZER, Keys.NUMBER, Layout.FULL, 12)
    assert not optim.shared
    assert contents.foreign == []


@pytest.mark.parametrize("store", [save, save_dcp])
def test_an_optimizer_by_name_is_one_in_a_file_and_in_a_folder(tmp_path: Path, store: Any) -> None:
    _, optim = parts(inspect(str(store(by_name(trained()), tmp_path / "a"))))
    assert optim.keys is Keys.NAME
    assert optim.names == ("0.weight", "0.bias", "1.weight", "1.bias")


def test_a_file_in_the_old_format_is_read_too(tmp_path: Path) -> None:
    new = inspect(str(save(trained(), tmp_path / "a.pt")))
    old = inspect(str(save(trained(), tmp_path / "b.pt", _use_new_zipfile_serialization=False)))
    assert list(parts(old)) == list(parts(new))


def test_a_model_alone_is_the_whole_file(tmp_path: Path) -> None:
    (part,) = parts(inspect(str(save(trained()["model"], tmp_path / "a.pt"))))
    assert (part.kind, part.path) == (Kind.MODEL, ())


def test_a_folder_without_optimizer_state_has_an_optimizer_all_the_same(tmp_path: Path) -> None:
    state = by_name(trained())
    state["optimizer"]["state"] = {}
    _, optim = parts(inspect(str(save_dcp(state, tmp_path / "a"))))
    assert (optim.kind, optim.keys, optim.tensors) == (Kind.OPTIMIZER, Keys.NAME, 0)


def test_flattened_optimizer_state_is_told_from_the_usual(tmp_path: Path) -> None:
    flat = {"state.0.weight.step": torch.ones(()), "param_groups.0.weight.lr": 0.1}
    _, optim = parts(inspect(str(save_dcp({"model": trained()["model"], "optimizer": flat}, tmp_path / "a"))))
    assert (optim.keys, optim.names) == (Keys.FLATTENED, ("0.weight",))
    assert "flatten_optimizer_state_dict=True" in text(tmp_path / "a")


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."])
def test_prefixes_are_counted(tmp_path: Path, prefix: str) -> None:
    for part in parts(inspect(str(save(by_name(trained(prefix), prefix), tmp_path / "a.pt")))):
        assert part.prefixes == {prefix: 4}
    assert f"`{prefix}` in 4 of 4" in text(tmp_path / "a.pt")


def test_a_part_of_the_model_that_is_called_module_is_no_prefix(tmp_path: Path) -> None:
    (part,) = parts(inspect(str(save({"module.weight": torch.ones(1), "head.weight": torch.ones(1)}, tmp_path / "a"))))
    assert part.prefixes == {}


def test_entries_that_share_a_step_are_listed_and_what_comes_of_it(tmp_path: Path) -> None:
    state = by_name(trained())
    step = torch.tensor(7.0)
    for name in ("0.weight", "0.bias"):
        state["optimizer"]["state"][name]["step"] = step
    _, optim = parts(inspect(str(save(state, tmp_path / "a.pt"))))
    assert optim.shared == (("0.weight.step", "0.bias.step"),)
    assert "2 entries share 1 `step`" in text(tmp_path / "a.pt")


def test_views_of_one_storage_are_not_shared(tmp_path: Path) -> None:
    state = by_name(trained())
    whole = torch.zeros(8)
    for number, name in enumerate(state["optimizer"]["state"]):
        state["optimizer"]["state"][name]["step"] = whole[number]
    assert next(part for part in parts(inspect(str(save(state, tmp_path / "a")))) if part.keys).shared == ()


def test_tied_weights_of_a_model_are_no_fault(tmp_path: Path) -> None:
    weight = torch.ones(2)
    assert "one tensor" not in text(save({"a.weight": weight, "b.weight": weight}, tmp_path / "a.pt"))


def without_decoupled(state: dict[str, Any]) -> dict[str, Any]:
    """As torch 2.4 to 2.6 write the groups of AdamW."""
    for group in state["optimizer"]["param_groups"]:
        del group["decoupled_weight_decay"]
    return state


def test_a_folder_without_decoupled_weight_decay_says_what_dcp_load_does(tmp_path: Path) -> None:
    shown = text(save_dcp(without_decoupled(by_name(trained())), tmp_path / "a"))
    assert "groups have no decoupled_weight_decay" in shown
    assert "allow_partial_load=True" in shown
    assert "groups have no" not in text(save_dcp(by_name(trained()), tmp_path / "b"))


def test_which_torch_wrote_a_file_is_told_as_far_as_it_shows(tmp_path: Path) -> None:
    assert "written by torch 2.7 or newer" in text(save(trained(), tmp_path / "a.pt"))
    assert "written by torch 2.0 to 2.6" in text(save(without_decoupled(trained()), tmp_path / "b.pt"))
    assert "written by torch 2.9 or newer" in text(save_dcp(trained(), tmp_path / "c"))
    assert "written by" not in text(save(trained()["model"], tmp_path / "d.pt"))


def test_json_has_every_name_and_what_the_text_says(tmp_path: Path) -> None:
    path = str(save(by_name(trained()), tmp_path / "a.pt"))
    found = json.loads(document(inspect(path)))
    assert found["schema_version"] == 1
    assert (found["format"], found["path"]) == ("full", path)
    assert found["torch"] == {"first": "2.7", "last": None, "because": ["its Adam groups have decoupled_weight_decay"]}
    model, optim = found["parts"]
    assert model["names"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert (optim["keys"], optim["path"], optim["shared"]) == ("name", ["optimizer"], [])
    assert all(line in "\n".join(lines(inspect(path))) for line in optim["read_by"] + optim["not_read_by"])


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_inspecting_loads_no_torch_and_takes_little_memory_for_a_large_file(tmp_path: Path) -> None:
    large = tmp_path / "a.pt"
    torch.save(by_name(trained()) | {"model": {"0.weight": torch.zeros(200 << 20, dtype=torch.uint8)}}, large)
    program = (
        "import sys; from fsdp_migrate.commands.cli import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "checkpoint", "inspect", str(large)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "209.7 MB" in done.stdout
    assert int(done.stderr) < 100_000  # kilobytes
    os.unlink(large)
