"""`checkpoint convert`: the same values in another place, such that newer programs read them."""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from fsdp_migrate.checkpoint import CheckpointError, conversion, inspect, room
from fsdp_migrate.checkpoint.contents import Format
from fsdp_migrate.checkpoint.conversion import Wish, convert
from fsdp_migrate.checkpoint.layout import Keys, parts
from tests.checkpoint.test_inspect import by_name, save, save_dcp, trained, without_decoupled

NAMES = [["0.weight", "0.bias", "1.weight", "1.bias"]]


def made(source: Path, target: Path, **wish: Any) -> list[str]:
    told: list[str] = []
    convert(str(source), Wish(str(target), **wish), told.append)
    return told


def loaded(file: Path) -> Any:
    return torch.load(file, weights_only=True)


def digest(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else sorted(path.iterdir())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other):
            assert_same(*pair)
    else:
        assert one == other


def test_a_file_becomes_a_folder_and_comes_back(tmp_path: Path) -> None:
    state = by_name(trained())
    source = save(state, tmp_path / "a.pt")
    before = digest(source)
    (told,) = made(source, tmp_path / "b")
    assert told.startswith("needs ")
    assert inspect(str(tmp_path / "b")).format is Format.DCP
    made(tmp_path / "b", tmp_path / "c.pt")
    assert_same(state, loaded(tmp_path / "c.pt"))
    assert digest(source) == before
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b", "c.pt"]


def test_a_file_in_the_old_format_is_converted_too(tmp_path: Path) -> None:
    state = by_name(trained())
    source = save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    made(source, tmp_path / "b.pt", format=Format.FULL)
    assert_same(state, loaded(tmp_path / "b.pt"))


def test_numbers_of_parameters_are_numbers_again_after_a_folder(tmp_path: Path) -> None:
    made(save(trained(), tmp_path / "a.pt"), tmp_path / "b")
    _, told = made(tmp_path / "b", tmp_path / "c.pt")
    assert told == "optimizer: parameter numbers are numbers again, not text"
    assert_same(trained(), loaded(tmp_path / "c.pt"))


def shared_step() -> dict[str, Any]:
    state = by_name(trained())
    step = torch.tensor(7.0)
    for entries in state["optimizer"]["state"].values():
        entries["step"] = step
    return state


def test_a_shared_step_becomes_four_with_the_same_value(tmp_path: Path) -> None:
    _, told = made(save(shared_step(), tmp_path / "a.pt"), tmp_path / "b.pt", format=Format.FULL)
    assert told == "optimizer: 4 entries that shared 1 tensor are now separate"
    new = loaded(tmp_path / "b.pt")
    assert_same(shared_step(), new)
    steps = [entries["step"] for entries in new["optimizer"]["state"].values()]
    assert len({step.data_ptr() for step in steps}) == 4
    assert made(tmp_path / "b.pt", tmp_path / "c.pt", format=Format.FULL)[1:] == []


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "_orig_mod.module.", "_checkpoint_wrapped_module."])
@pytest.mark.parametrize("target", list(Format))
def test_prefixes_are_stripped_from_models_and_optimizers(tmp_path: Path, prefix: str, target: Format) -> None:
    source = save(by_name(trained(prefix), prefix), tmp_path / "a.pt")
    made(source, tmp_path / "b", format=target)
    if target is Format.DCP:
        made(tmp_path / "b", tmp_path / "c")
    assert_same(by_name(trained()), loaded(tmp_path / ("c" if target is Format.DCP else "b")))


def test_prefixes_stay_where_asked(tmp_path: Path) -> None:
    state = by_name(trained("module."), "module.")
    made(save(state, tmp_path / "a.pt"), tmp_path / "b.pt", format=Format.FULL, strip=False)
    assert_same(state, loaded(tmp_path / "b.pt"))


def test_a_model_keeps_its_kind_and_the_versions_of_its_modules(tmp_path: Path) -> None:
    model = OrderedDict({f"_orig_mod.{name}": value for name, value in trained()["model"].items()})
    model._metadata = OrderedDict({"": {"version": 1}, "_orig_mod": {"version": 1}, "_orig_mod.0": {"version": 2}})  # type: ignore[attr-defined]
    made(save({"model": model}, tmp_path / "a.pt"), tmp_path / "b.pt", format=Format.FULL)
    new = loaded(tmp_path / "b.pt")["model"]
    assert type(new) is OrderedDict
    assert new._metadata == {"": {"version": 1}, "0": {"version": 2}}  # type: ignore[attr-defined]


def test_two_names_that_would_be_one_are_refused(tmp_path: Path) -> None:
    source = save({"a.weight": torch.ones(1), "_orig_mod.a.weight": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="two names would be the same without prefixes: pass --keep-prefixes"):
        made(source, tmp_path / "b")
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("store", [save, save_dcp])
@pytest.mark.parametrize("target", list(Format))
def test_groups_of_adam_get_what_torch_2_7_added(tmp_path: Path, store: Any, target: Format) -> None:
    source = store(without_decoupled(by_name(trained())), tmp_path / "a")
    told = made(source, tmp_path / "b", format=target)
    assert told[1:] == [
        "optimizer: decoupled_weight_decay=False added to groups of Adam (AdamW sets it to True when it loads)"
    ]
    (group,) = contents_groups(tmp_path / "b")
    assert group["decoupled_weight_decay"] is False
    assert group["lr"] == 0.1


def contents_groups(path: Path) -> list[Any]:
    groups = inspect(str(path)).tree["optimizer"]["param_groups"]
    return list(groups.values()) if isinstance(groups, dict) else groups


def test_torch_makes_the_added_value_right_for_both_optimizers(tmp_path: Path) -> None:
    made(save(without_decoupled(trained()), tmp_path / "a.pt"), tmp_path / "b.pt", format=Format.FULL)
    state = loaded(tmp_path / "b.pt")["optimizer"]
    for kind, right in ((torch.optim.Adam, False), (torch.optim.AdamW, True)):
        optim = kind([torch.nn.Parameter(value) for value in trained()["model"].values()])
        optim.load_state_dict(state)
        assert optim.param_groups[0]["decoupled_weight_decay"] is right


@pytest.mark.parametrize("store", [save, save_dcp])
@pytest.mark.parametrize("target", list(Format))
def test_state_by_number_is_found_by_name(tmp_path: Path, store: Any, target: Format) -> None:
    made(store(trained(), tmp_path / "a"), tmp_path / "b", format=target, names=NAMES)
    if target is Format.DCP:
        made(tmp_path / "b", tmp_path / "c")
    assert_same(by_name(trained()), loaded(tmp_path / ("c" if target is Format.DCP else "b")))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "has groups of no names, but the optimizer has groups of 4"),
        ([["a", "b"], ["c", "d"]], "has groups of 2, 2 names, but the optimizer has groups of 4"),
        ([["a", "b", "c"]], "has groups of 3 names, but the optimizer has groups of 4"),
        ([["a", "b", "c", "a"]], "has a name twice"),
        (
            [["1.bias", "0.bias", "1.weight", "0.weight"]],
            "1.bias has the shape 2, but the state of its number has 4, 3",
        ),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, names: list[list[str]], told: str) -> None:
    source = save(trained(), tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=told):
        made(source, tmp_path / "b", names=names)
    assert os.listdir(tmp_path) == ["a.pt"]


def test_names_with_prefixes_lose_them_as_the_models_do(tmp_path: Path) -> None:
    source = save(trained("_orig_mod."), tmp_path / "a.pt")
    names = [[f"_fsdp_wrapped_module.{name}" for name in NAMES[0]]]
    made(source, tmp_path / "b.pt", format=Format.FULL, names=names)
    assert_same(by_name(trained()), loaded(tmp_path / "b.pt"))
    with pytest.raises(CheckpointError, match=r"1\.bias has the shape 2"):
        made(source, tmp_path / "c.pt", names=[names[0][::-1]])


def test_separating_a_step_copies_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda value: copied.append(value.numel()) or clone(value))
    made(save(shared_step(), tmp_path / "a.pt"), tmp_path / "b.pt", format=Format.FULL)
    assert copied == [1, 1, 1]


def test_names_for_an_optimizer_that_has_names_are_refused(tmp_path: Path) -> None:
    source = save(by_name(trained()), tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="needs one optimizer with state by number; there are 0"):
        made(source, tmp_path / "b", names=NAMES)


@pytest.mark.parametrize("target", list(Format))
def test_values_that_are_no_state_come_through(tmp_path: Path, target: Format) -> None:
    state = {
        "model": {"a.weight": torch.tensor([float("nan"), -0.0]), "a.half": torch.ones(2, dtype=torch.bfloat16)},
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(6).reshape(2, 3).t(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "nothing": None,
        "history": [0.5, (1, "x")],
    }
    made(save(state, tmp_path / "a.pt"), tmp_path / "b", format=target)
    if target is Format.DCP:
        made(tmp_path / "b", tmp_path / "c")
    new = loaded(tmp_path / ("c" if target is Format.DCP else "b"))
    assert torch.equal(new["model"]["a.weight"].view(torch.int32), state["model"]["a.weight"].view(torch.int32))
    for key in ("scalar", "empty", "strided", "nothing", "history"):
        assert_same(state[key], new[key])


def test_what_exists_is_never_overwritten(tmp_path: Path) -> None:
    source = save(trained(), tmp_path / "a.pt")
    before = digest(source)
    for target in (source, tmp_path, tmp_path / "dangling"):
        if target.name == "dangling":
            target.symlink_to("nowhere")
        with pytest.raises(CheckpointError, match="exists already, and is not overwritten"):
            made(source, target)
    assert digest(source) == before


def test_a_target_inside_of_the_source_is_refused(tmp_path: Path) -> None:
    source = save_dcp(trained(), tmp_path / "a")
    with pytest.raises(CheckpointError, match="is inside the checkpoint that is converted"):
        made(source, source / "b.pt")


def test_a_target_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="its folder does not exist"):
        made(save(trained(), tmp_path / "a.pt"), tmp_path / "none" / "b")


def test_too_little_memory_or_disk_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save_dcp({"a.weight": torch.zeros(1000, 1000)}, tmp_path / "a")
    monkeypatch.setattr(room, "_free_memory", lambda: 10_000_000)
    with pytest.raises(CheckpointError, match=r"needs 75\.1 MB of memory \(10\.0 MB free\) and 71\.1 MB on disk"):
        made(source, tmp_path / "b.pt")
    assert os.listdir(tmp_path) == ["a"]


def test_what_reads_back_differently_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = torch.save

    def broken(state: Any, file: str) -> None:
        state["model"]["0.weight"] = state["model"]["0.weight"] + 1
        write(state, file)
        state["model"]["0.weight"] = state["model"]["0.weight"] - 1

    source = save(trained(), tmp_path / "a.pt")
    monkeypatch.setattr(conversion.torch, "save", broken)
    with pytest.raises(CheckpointError, match=r"the value read back differs at model\.0\.weight"):
        made(source, tmp_path / "b.pt", format=Format.FULL)
    assert os.listdir(tmp_path) == ["a.pt"]


class Marks:
    """What makes a folder as it is loaded."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("store", [save, save_dcp])
def test_a_pickle_that_runs_code_is_refused_unless_trusted(tmp_path: Path, store: Any) -> None:
    mark = tmp_path / "mark"
    source = store({"a.weight": torch.ones(1), "b": Marks(str(mark))}, tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"its pickles name posix\.mkdir, and loading runs it: pass --trust"):
        made(source, tmp_path / "b")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("store", [save, save_dcp])
@pytest.mark.parametrize("target", list(Format))
def test_a_class_of_somebody_comes_through_where_it_is_trusted(tmp_path: Path, store: Any, target: Format) -> None:
    source = store({"a.weight": torch.ones(1), "options": argparse.Namespace(lr=0.1)}, tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"its pickles name argparse\.Namespace"):
        made(source, tmp_path / "b", format=target)
    made(source, tmp_path / "b", format=target, trust=True)
    assert inspect(str(tmp_path / "b")).tree["options"].state == {"lr": 0.1}


def as_torch_2_2_does(state: dict[str, Any], folder: Path) -> Path:
    """A folder with the parameter groups in one piece, and without what later releases put into its metadata."""
    flat = {("model", name): value for name, value in state["model"].items()}
    for name, entries in state["optimizer"]["state"].items():
        flat |= {("optimizer", "state", name, entry): value for entry, value in entries.items()}
    flat |= {("optimizer", "param_groups"): state["optimizer"]["param_groups"], ("epoch",): state["epoch"]}
    save_dcp({".".join(path): value for path, value in flat.items()}, folder, flatten_state_dict=False)
    with (folder / ".metadata").open("rb") as file:
        metadata = pickle.load(file)
    metadata.planner_data = {".".join(path): path for path in flat}
    del metadata.storage_meta, metadata.version
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


@pytest.mark.parametrize("target", list(Format))
def test_a_folder_of_torch_2_2_is_read_and_converted(tmp_path: Path, target: Format) -> None:
    source = as_torch_2_2_does(without_decoupled(by_name(trained("_orig_mod."), "_orig_mod.")), tmp_path / "a")
    contents = inspect(str(source))
    _, optim = parts(contents)
    assert (optim.keys, optim.undecoupled, optim.prefixes) == (Keys.NAME, True, {"_orig_mod.": 4})
    assert [(written.first, written.last) for written in contents.written] == [("2.0", "2.3")]
    made(source, tmp_path / "b", format=target)
    if target is Format.DCP:
        made(tmp_path / "b", tmp_path / "c")
    new = loaded(tmp_path / ("c" if target is Format.DCP else "b"))
    right = by_name(trained())
    right["optimizer"]["param_groups"][0]["decoupled_weight_decay"] = False
    assert_same(sorted_groups(right), sorted_groups(new))


def sorted_groups(state: dict[str, Any]) -> dict[str, Any]:
    """The order of keys in a group says nothing."""
    groups = [dict(sorted(group.items())) for group in state["optimizer"]["param_groups"]]
    return {**state, "optimizer": {**state["optimizer"], "param_groups": groups}}
