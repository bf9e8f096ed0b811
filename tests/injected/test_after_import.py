"""Functions that run on a module right after its own code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fsdp_migrate.injected.after_import import _Finder, after_import


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    if _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


def test_it_runs_before_anyone_takes_a_name_from_the_module(folder: Path) -> None:
    (folder / "lib_a.py").write_text("value = 1\n")
    (folder / "user_a.py").write_text("from lib_a import value\n")
    after_import("lib_a", lambda module: setattr(module, "value", module.value + 1))
    after_import("lib_a", lambda module: setattr(module, "value", module.value * 10))
    assert importlib.import_module("user_a").value == 20
    loader = sys.modules["lib_a"].__spec__.loader  # type: ignore[union-attr]
    assert "exec_module" not in vars(loader)


def test_on_a_module_that_is_there_it_runs_at_once_and_never_again(folder: Path) -> None:
    (folder / "lib_b.py").write_text("")
    module = importlib.import_module("lib_b")
    seen: list[ModuleType] = []
    after_import("lib_b", seen.append)
    assert seen == [module]
    importlib.reload(module)
    assert seen == [module]


def test_a_submodule_of_a_package_is_reached_and_a_missing_module_stays_missing(folder: Path) -> None:
    (folder / "pack_c").mkdir()
    (folder / "pack_c" / "__init__.py").write_text("from pack_c.inner import name\n")
    (folder / "pack_c" / "inner.py").write_text("name = 'old'\n")
    after_import("pack_c.inner", lambda module: setattr(module, "name", "new"))
    after_import("pack_c.missing", lambda module: None)
    assert importlib.import_module("pack_c").name == "new"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pack_c.missing")


def test_a_module_whose_code_fails_can_be_imported_again(folder: Path) -> None:
    (folder / "lib_d.py").write_text("import os\nos.environ['FSDP_MIGRATE_TEST_D']\n")
    seen: list[str] = []
    after_import("lib_d", lambda module: seen.append(module.__name__))
    with pytest.raises(KeyError):
        importlib.import_module("lib_d")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSDP_MIGRATE_TEST_D", "1")
        importlib.import_module("lib_d")
    assert seen == ["lib_d"]
