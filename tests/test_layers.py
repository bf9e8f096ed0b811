"""The tables in CONTRIBUTING.md say what is where, and the first of them which part may know which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fsdp_migrate"
# Not for the tables: the functions of the package are loaded when they are asked for, and its version is a constant.
OUTSIDE = {"__init__", "__main__", "_version"}


def table(folder: str) -> list[list[str]]:
    """What the rows of the table of a folder name, top first."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = text.partition(f"| `{folder}/` | |\n|---|---|\n")[2].partition("\n\n")[0]
    return [re.findall(r"`(\w+)(?:/|\.py)`", row.split("|")[1]) for row in rows.splitlines()]


def parts() -> list[str]:
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted({*folders, *(path.stem for path in PACKAGE.glob("*.py"))} - OUTSIDE)


def modules() -> dict[str, Path]:
    """The files of the package by the names of their modules."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def imports(path: Path) -> frozenset[str]:
    """What a file of the package imports of it, for types and in functions included: modules, and names in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(ROOT).parts[:-1])
            module = resolve_name("." * node.level + (node.module or ""), package)
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in found if name.startswith("fsdp_migrate."))


def imported(part: str) -> Iterator[str]:
    """The other parts that a part imports from, those for types only included."""
    for path in [PACKAGE / f"{part}.py", *(PACKAGE / part).rglob("*.py")]:
        yield from (name.split(".")[1] for name in (imports(path) if path.exists() else ()))


def test_no_modules_import_one_another_in_a_circle() -> None:
    paths = modules()
    graph = {
        module: {name if name in paths else name.rpartition(".")[0] for name in imports(path)} - {module}
        for module, path in paths.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("folder", ["facts", "code", "targets/modernise"])
def test_the_table_of_a_folder_names_everything_in_it_once(folder: str) -> None:
    named = sorted(name for row in table(f"fsdp_migrate/{folder}") for name in row)
    there = [
        path.stem for path in (PACKAGE / folder).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    assert named == sorted(name for name in there if name not in OUTSIDE)


def test_no_target_imports_another() -> None:
    targets = [path.parent for path in (PACKAGE / "targets").glob("*/__init__.py")]
    for target in targets:
        others = [f"fsdp_migrate.targets.{other.name}" for other in targets if other != target]
        for path in target.rglob("*.py"):
            text = path.read_text()
            assert not [other for other in others if other in text], path


def test_the_table_names_every_part_once() -> None:
    assert sorted(part for row in table("fsdp_migrate") for part in row) == parts()


@pytest.mark.parametrize("part", parts())
def test_a_part_imports_only_what_stands_beside_or_below_it(part: str) -> None:
    rows = table("fsdp_migrate")
    own = next(number for number, row in enumerate(rows) if part in row)
    below = {name for row in rows[own:] for name in row}
    assert {name for name in imported(part) if name in parts()} <= below
