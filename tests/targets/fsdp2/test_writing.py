"""A model is converted in all files or in none, whichever of them cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.torture.programs import call, run

_HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
# The strategy comes at run time: the conversion makes a module, `fsdp2.py`.
TREE = {
    "build.py": f"{_HEAD}\n\ndef sharded(net, strategy):\n    return FSDP(net, sharding_strategy=strategy)\n",
    "evaluate.py": f"{_HEAD}\n\ndef check(model):\n    assert isinstance(model, FSDP)\n",
    "train.py": (
        "import torch\nfrom build import sharded\nfrom evaluate import check\n\n\ndef main(strategy):\n"
        "    model = sharded(torch.nn.Linear(2, 2), strategy)\n    check(model)\n    model.clip_grad_norm_(1.0)\n"
    ),
}
ARGUMENTS = ("rewrite", "-q", "--isolated", "--target", "fsdp2", "--torch", ">=2.13", ".")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    for name, text in TREE.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def tree(root: Path) -> Mapping[str, str]:
    return {path.name: path.read_text() for path in sorted(root.glob("*.py"))}


def test_all_files_change_together(root: Path) -> None:
    assert call(root, *ARGUMENTS).exit_code == 0
    changed = tree(root)
    assert list(changed) == ["build.py", "evaluate.py", "fsdp2.py", "train.py"]
    assert not any("FullyShardedDataParallel" in changed[name] for name in TREE)


@pytest.mark.parametrize("name", TREE)
def test_a_file_that_is_read_only_keeps_all_as_they_are(root: Path, name: str) -> None:
    (root / name).chmod(0o444)
    ended = run(root, *ARGUMENTS, powerless=True)
    assert (ended.returncode, tree(root)) == (3, TREE)
    assert ended.stderr == f"error: {name}: not rewritten: the file is read-only\n"


@pytest.mark.parametrize("name", [*TREE, "fsdp2.py"])
def test_a_file_whose_writing_fails_keeps_all_as_they_are(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in ("replace", "link"):
        real = getattr(os, function)

        def failing(source: str, target: str, real: object = real, **options: object) -> None:
            if os.path.basename(target) == name:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(source, target, **options)  # type: ignore[operator]

        monkeypatch.setattr(os, function, failing)
    ended = call(root, *ARGUMENTS)
    assert (ended.exit_code, tree(root)) == (3, TREE)
    assert ended.stderr == f"error: {name}: cannot be written: Input/output error\n"
