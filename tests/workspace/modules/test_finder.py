from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.workspace.modules.finder import Finder
from tests.workspace.modules.trees import grow


def found(root: Path, module: str, path: str) -> str | None:
    place = Finder().find(module, str(root / path))
    return None if place is None else Path(place).relative_to(root).as_posix()


def test_an_absolute_name_is_looked_for_beside_the_outermost_package_before_in_the_folder(tmp_path: Path) -> None:
    packages = {"lib/pkg/__init__.py": "", "lib/pkg/sub/__init__.py": ""}
    grow(tmp_path, {**packages, "lib/helpers.py": "", "lib/pkg/helpers.py": "", "lib/pkg/sub/helpers.py": ""})
    assert found(tmp_path, "helpers", "lib/pkg/sub/a.py") == "lib/helpers.py"
    (tmp_path / "lib/helpers.py").unlink()
    assert found(tmp_path, "helpers", "lib/pkg/sub/a.py") == "lib/pkg/sub/helpers.py"
    (tmp_path / "lib/pkg/sub/helpers.py").unlink()
    assert found(tmp_path, "helpers", "lib/pkg/sub/a.py") == "lib/pkg/helpers.py"


def test_two_packages_of_the_name_beside_one_another_are_none(tmp_path: Path) -> None:
    grow(tmp_path, {"one/lib/__init__.py": "", "app/train.py": ""})
    assert found(tmp_path, "lib", "app/train.py") == "one/lib/__init__.py"
    grow(tmp_path, {"two/lib/__init__.py": ""})
    assert found(tmp_path, "lib", "app/train.py") is None


@pytest.mark.parametrize(
    ("module", "place"),
    [
        (".", "pkg/sub/__init__.py"),
        ("..", "pkg/__init__.py"),
        (".b", "pkg/sub/b.py"),
        ("..c", "pkg/c.py"),
        ("..sub.b", "pkg/sub/b.py"),
        (".c", None),
        ("...c", None),
    ],
)
def test_a_relative_name_counts_its_dots(module: str, place: str | None, tmp_path: Path) -> None:
    grow(tmp_path, {"pkg/__init__.py": "", "pkg/c.py": "", "pkg/sub/__init__.py": "", "pkg/sub/b.py": ""})
    assert found(tmp_path, module, "pkg/sub/a.py") == place


def test_a_module_of_the_standard_library_is_not_looked_for(tmp_path: Path) -> None:
    grow(tmp_path, {"json.py": "", "json2.py": ""})
    assert [found(tmp_path, name, "a.py") for name in ("json", "json2")] == [None, "json2.py"]
