"""What is no checkpoint, or a bad one: one line each, nothing run, nothing changed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fsdp_migrate.commands.cli import cli
from tests.checkpoint.test_convert import Marks
from tests.checkpoint.test_inspect import save, save_dcp, trained
from tests.test_process import start


def empty_folder(folder: Path) -> str:
    (folder / "bad").mkdir()
    return "the folder is empty"


def folder_of_something_else(folder: Path) -> str:
    (folder / "bad").mkdir()
    (folder / "bad" / "notes.txt").write_text("x")
    return "it is not a DCP folder: it has no .metadata"


def unfinished_folder(folder: Path) -> str:
    (save_dcp(trained(), folder / "bad") / ".metadata").unlink()
    return "it has 1 .distcp files but no .metadata, which is written last: the save did not finish"


def folder_without_a_shard(folder: Path) -> str:
    (save_dcp(trained(), folder / "bad") / "__0_0.distcp").unlink()
    return r"__0_0.distcp is missing: it has \d+ of \d+ stored pieces"


def folder_with_a_truncated_shard(folder: Path) -> str:
    os.truncate(save_dcp(trained(), folder / "bad") / "__0_0.distcp", 1000)
    return r"__0_0.distcp is truncated: it has 1000 of \d+ bytes"


def folder_with_damaged_metadata(folder: Path) -> str:
    os.truncate(save_dcp(trained(), folder / "bad") / ".metadata", 1000)
    return "its pickle is damaged"


def folder_that_leads_elsewhere(folder: Path) -> str:
    metadata = save_dcp(trained(), folder / "bad") / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"__0_0.distcp", b"../../secret"))
    return r"its .metadata names a file outside of the folder: ../../secret"


def folder_whose_metadata_is_a_pipe(folder: Path) -> str:
    (folder / "bad").mkdir()
    os.mkfifo(folder / "bad" / ".metadata")
    return "it is not a regular file"


def empty_file(folder: Path) -> str:
    (folder / "bad").write_bytes(b"")
    return "it is not a file of torch.save"


def text_file(folder: Path) -> str:
    (folder / "bad").write_text("import torch\n")
    return "it is not a file of torch.save"


def truncated_file(folder: Path) -> str:
    file = save(trained(), folder / "bad")
    os.truncate(file, file.stat().st_size - 100)
    return "it is truncated or damaged: the directory at its end is missing"


def truncated_file_in_the_old_format(folder: Path) -> str:
    file = save(trained(), folder / "bad", _use_new_zipfile_serialization=False)
    os.truncate(file, file.stat().st_size - 100)
    return "it is truncated"


def sparse_file(folder: Path) -> str:
    (folder / "bad").touch()
    os.truncate(folder / "bad", 3 << 30)
    return "it is not a file of torch.save"


def sparse_file_that_begins_well(folder: Path) -> str:
    os.truncate(save(trained(), folder / "bad"), 3 << 30)
    return "it is truncated or damaged: the directory at its end is missing"


def torchscript(folder: Path) -> str:
    import zipfile

    with zipfile.ZipFile(folder / "bad", "w") as archive:
        archive.writestr("m/constants.pkl", b"")
    return "it is not a file of torch.save, but a TorchScript archive"


def symlink_loop(folder: Path) -> str:
    (folder / "bad").symlink_to(folder / "bad")
    return "cannot be read: Too many levels of symbolic links"


def nothing(folder: Path) -> str:
    return "cannot be read: No such file or directory"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "bad")
    return "it is not a regular file"


BAD: list[Callable[[Path], str]] = [
    empty_folder,
    folder_of_something_else,
    unfinished_folder,
    folder_without_a_shard,
    folder_with_a_truncated_shard,
    folder_with_damaged_metadata,
    folder_that_leads_elsewhere,
    folder_whose_metadata_is_a_pipe,
    empty_file,
    text_file,
    truncated_file,
    truncated_file_in_the_old_format,
    sparse_file,
    sparse_file_that_begins_well,
    torchscript,
    symlink_loop,
    nothing,
    pipe,
]


def tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), os.lstat(path).st_mtime_ns) for path in folder.rglob("*"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = cli.main(["checkpoint", *arguments], standalone_mode=False) or 0
    except Exception as error:
        error.show()  # type: ignore[attr-defined]
        status = error.exit_code  # type: ignore[attr-defined]
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("make", BAD, ids=[make.__name__ for make in BAD])
def test_bad_input_is_one_line_and_changes_nothing(
    tmp_path: Path, make: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = make(tmp_path)
    before = tree(tmp_path)
    line = f"Error: {re.escape(str(tmp_path / 'bad'))}: {told}\n"
    for arguments in (["inspect", str(tmp_path / "bad")], ["convert", str(tmp_path / "bad"), str(tmp_path / "new")]):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (3, "")
        assert re.fullmatch(line, err), err
    assert tree(tmp_path) == before


@pytest.mark.parametrize("store", [save, save_dcp])
def test_a_pickle_that_would_run_code_is_described_and_not_run(
    tmp_path: Path, store: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source = store({**trained(), "mark": Marks(str(tmp_path / "mark"))}, tmp_path / "bad")
    before = tree(tmp_path)
    status, out, _ = run(capsys, "inspect", str(source))
    assert status == 0
    assert f"refused by weights_only=True: its pickles name {os.mkdir.__module__}.mkdir" in out
    status, out, err = run(capsys, "convert", str(source), str(tmp_path / "new"))
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert tree(tmp_path) == before


def test_metadata_that_would_run_code_is_not_given_to_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pickle

    folder = save_dcp(trained(), tmp_path / "bad")
    with (folder / ".metadata").open("rb") as file:
        metadata = pickle.load(file)
    metadata.storage_meta = Marks(str(tmp_path / "mark"))
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    before = tree(tmp_path)
    status, _, err = run(capsys, "convert", str(folder), str(tmp_path / "new"))
    assert status == 3
    assert "loading runs it: pass --trust" in err
    assert tree(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "setresuid") or os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("store", [save, save_dcp])
def test_what_belongs_to_another_user_is_one_line(
    tmp_path: Path, store: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source = store(trained(), tmp_path / "bad")
    readable = store(trained(), tmp_path / "good")
    for path in (source, *(source.iterdir() if source.is_dir() else ())):
        path.chmod(0o600)
    closed = {path: path.stat().st_mode for path in (tmp_path, *tmp_path.parents) if path.stat().st_mode & 0o55 != 0o55}
    for path, mode in closed.items():
        path.chmod(mode | 0o55)
    os.setresuid(65534, 65534, 0)
    try:
        answers = [run(capsys, "inspect", str(source)), run(capsys, "convert", str(source), str(tmp_path / "new"))]
        read_only = run(capsys, "convert", str(readable), str(tmp_path / "new"))
    finally:
        os.setresuid(0, 0, 0)
        for path, mode in closed.items():
            path.chmod(mode)
    for status, out, err in answers:
        assert (status, out, err) == (3, "", f"Error: {source}: cannot be read: Permission denied\n")
    assert read_only[0] == 3
    assert read_only[2].count("\n") == 1
    assert "cannot be written: Permission denied" in read_only[2]


def test_the_commands_say_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys, importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "sys.modules['torch'] = None\n"
    )
    save(trained(), tmp_path / "a.pt")
    path = os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])])
    done = start(tmp_path, "checkpoint", "convert", "a.pt", "b", PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "Error: torch is not installed; pip install torch numpy"
    done = start(tmp_path, "checkpoint", "inspect", "a.pt", PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "optimizer: optimizer, full, by number; 12 tensors" in done.stdout


def test_convert_takes_names_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, names, new = save(trained(), tmp_path / "a.pt"), tmp_path / "names.json", tmp_path / "b.pt"
    names.write_text('[["0.weight", "0.bias", "1.weight", "1.bias"]]')
    arguments = ["convert", "--to", "full", "--parameter-names", str(names), str(source), str(new)]
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    needs, told, done = out.splitlines()
    assert needs.startswith("needs ")
    assert told == "optimizer: the state of 4 parameters is now by name"
    assert done == f"{new}: torch.save file, 328 B of tensors, read back and compared"
    assert list(torch.load(new)["optimizer"]["state"]) == ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("text", ["", "{}", '["a"]', "[[1]]", "\xff", "[" * 100_000])
def test_a_file_of_names_that_has_none_is_bad_usage(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, names = save(trained(), tmp_path / "a.pt"), tmp_path / "names.json"
    names.write_bytes(text.encode("latin-1"))
    status, out, err = run(capsys, "convert", "--parameter-names", str(names), str(source), str(tmp_path / "b"))
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("Error: Invalid value for --parameter-names: ")
    assert not (tmp_path / "b").exists()


def test_nothing_is_left_where_a_kill_interrupts_but_a_folder_that_says_whose_it_is(tmp_path: Path) -> None:
    # Its name is what this tool gives to what is not finished, and never the one that was asked for.
    program = (
        "import os, signal, sys\nfrom fsdp_migrate.checkpoint import conversion\n"
        "conversion.torch.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "conversion.convert('a.pt', conversion.Wish('b.pt', conversion.Format.FULL), print)\n"
    )
    import subprocess

    save(trained(), tmp_path / "a.pt")
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, check=False)
    left = sorted(os.listdir(tmp_path))
    assert left[1:] == ["a.pt"]
    assert re.fullmatch(r"\.fsdp-migrate-\w+\.tmp", left[0])
    shutil.rmtree(tmp_path / left[0])
