"""Files of a project that a run does not look at still import from those that it does, as in a hook."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate import runner
from fsdp_migrate.workspace import filesystem
from fsdp_migrate.workspace.settings.configuration import Configuration
from fsdp_migrate.workspace.settings.settings import Layer
from tests.workspace.modules.trees import grow

HEAD = "from torch.distributed.fsdp import FlatParameter\n"
CODE = 'def is_flat(p, ps):\n    return any(isinstance(p, FlatParameter) for p in ps["params"])\n'
TAKES = "from lib.flat import FlatParameter\n\nprint(FlatParameter)\n"


def after(root: Path, *paths: str) -> str:
    """The text of `lib/flat.py` once `paths` are rewritten."""
    runner.rewrite(filesystem.discover([str(root / path) for path in paths]), Configuration(Layer()), write=True)
    return (root / "lib" / "flat.py").read_text()


def grown(root: Path, **others: str) -> Path:
    named = {name.replace("__", "/") + ".py": text for name, text in others.items()}
    return grow(root, {"lib/__init__.py": "", "lib/flat.py": f"{HEAD}\n{CODE}", **named})


@pytest.mark.parametrize("run", [["lib/flat.py"], ["lib"], ["."]])
@pytest.mark.parametrize("name", ["lib__use", "tests__test_flat", "train"])
def test_an_import_that_another_file_of_the_project_takes_stays(name: str, run: list[str], tmp_path: Path) -> None:
    assert after(grown(tmp_path, **{name: TAKES}), *run).startswith(HEAD)


@pytest.mark.parametrize("run", [["lib/flat.py"], ["lib"], ["."]])
def test_an_import_that_no_file_of_the_project_takes_goes(run: list[str], tmp_path: Path) -> None:
    other = "from lib.flat import is_flat\nFlatParameter = 1\n"
    assert "FlatParameter" not in after(grown(tmp_path, train=other), *run)


def test_without_a_project_around_it_a_file_is_alone(tmp_path: Path) -> None:
    grown(tmp_path, train=TAKES)
    (tmp_path / "pyproject.toml").unlink()
    assert "FlatParameter" not in after(tmp_path, "lib/flat.py")
