"""Modules of the project come from the copy, wherever the user's Python would find them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from fsdp_migrate.injected.recorder import copied


class Both:
    """The user's tree and a copy of it; `import_` imports with the finder in front, from `sys.path` alone."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree, self.copy = (folder / "tree").resolve(), (folder / "copy").resolve()
        self.site = (folder / "site").resolve()
        self.site.mkdir()
        self.told: list[tuple[str, str]] = []
        self._patch = monkeypatch
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        monkeypatch.setattr(sys, "path", [*sys.path])

    def write(self, path: str, *, tree: str | None = "tree", copy: str | None = "copy") -> None:
        for root, text in ((self.tree, tree), (self.copy, copy)):
            if text is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(f"FROM = {text!r}\n")

    def import_(self, name: str, *folders: Path) -> ModuleType:
        sys.path[:0] = map(str, folders)
        finder = copied.install(str(self.copy), str(self.tree))
        finder.tell = lambda module, file: self.told.append((module, file))
        importlib.invalidate_caches()
        return importlib.import_module(name)


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    known = set(sys.modules)
    yield Both(tmp_path, monkeypatch)
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_a_folder_of_the_tree_in_the_path_becomes_that_of_the_copy(both: Both) -> None:
    both.write("src/moved_a/__init__.py")
    both.write("src/moved_a/deep/part.py")
    module = both.import_("moved_a.deep.part", both.tree / "src")
    assert (module.FROM, sys.modules["moved_a"].FROM) == ("copy", "copy")
    assert str(both.copy / "src") in sys.path
    assert both.told == []


def test_a_finder_of_an_editable_installation_is_followed_into_the_copy(both: Both) -> None:
    both.write("src/moved_b/__init__.py")
    both.write("src/moved_b/part.py")
    there = both.tree / "src" / "moved_b" / "__init__.py"

    class Editable:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            folders = [str(there.parent)]
            found = importlib.util.spec_from_file_location(name, there, submodule_search_locations=folders)
            return found if name == "moved_b" else None

    sys.meta_path.append(Editable)
    assert both.import_("moved_b.part").FROM == "copy"


def test_a_path_that_is_added_later_is_followed_too(both: Both) -> None:
    both.write("tools/moved_c.py")
    both.write("first_c.py")
    both.import_("first_c", both.copy)
    sys.path.insert(0, str(both.tree / "tools"))
    assert importlib.import_module("moved_c").FROM == "copy"


def test_a_package_without_an_init_is_in_the_copy(both: Both) -> None:
    both.write("spaced_d/part.py")
    assert both.import_("spaced_d.part", both.tree).FROM == "copy"


def test_an_installed_package_that_is_the_projects_is_taken_from_the_copy(both: Both) -> None:
    for name in ("__init__", "part", "more"):
        both.write(f"src/moved_e/{name}.py")
        (both.site / "moved_e").mkdir(exist_ok=True)
        (both.site / "moved_e" / f"{name}.py").write_text("FROM = 'installed'\n")
    assert both.import_("moved_e.part", both.site).FROM == "copy"


def test_a_package_of_another_project_with_a_name_of_a_folder_here_stays(both: Both) -> None:
    both.write("other_f/__init__.py")
    both.write("other_f/own.py")
    (both.site / "other_f").mkdir()
    for name in ("__init__", "arrow", "table"):
        (both.site / "other_f" / f"{name}.py").write_text("FROM = 'installed'\n")
    assert both.import_("other_f.arrow", both.site).FROM == "installed"
    assert both.told == []


def test_an_environment_in_the_tree_is_not_the_project(both: Both) -> None:
    both.write(".venv/lib/python3/site-packages/third_g.py", copy=None)
    site = both.tree / ".venv" / "lib" / "python3" / "site-packages"
    assert both.import_("third_g", site).FROM == "tree"
    assert both.told == []


@pytest.mark.parametrize("name", ["only_h", "pack_h.built"])
def test_a_module_that_only_the_tree_has_is_told(name: str, both: Both) -> None:
    both.write("pack_h/__init__.py")
    both.write("pack_h/built.py", copy=None)
    both.write("only_h.py", copy=None)
    assert both.import_(name, both.tree).FROM == "tree"
    assert both.told == [(name, str(both.tree / name.replace(".", "/")) + ".py")]


def test_a_module_that_is_nowhere_is_missing(both: Both) -> None:
    both.write("pack_i/__init__.py")
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        both.import_("pack_i.nothing", both.tree)
