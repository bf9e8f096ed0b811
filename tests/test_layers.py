"""The tables in CONTRIBUTING.md say what is where, and the first of them which part may know which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fsdp_migrate"
# Everything has the name and version of the package, whose two functions are loaded when they are asked for.
OUTSIDE = {"__init__", "__main__"}


def table(folder: str) -> list[list[str]]:
    """What the rows of the table of a folder name, top first."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = text.partition(f"| `{folder}/` | |\n|---|---|\n")[2].partition("\n\n")[0]
    return [re.findall(r"`(\w+)(?:/|\.py)`", row.split("|")[1]) for row in rows.splitlines()]


def parts() -> list[str]:
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted({*folders, *(path.stem for path in PACKAGE.glob("*.py"))} - OUTSIDE)


def imported(part: str) -> Iterator[str]:
    """The other parts that a part imports from, those for types only included."""
    for path in [PACKAGE / f"{part}.py", *(PACKAGE / part).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
            names = [alias.name for alias in getattr(node, "names", ())]
            if isinstance(node, ast.Import):
                modules = names
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [f"{node.module}.{name}" for name in names]
            else:
                continue
            yield from (module.split(".")[1] for module in modules if module.startswith("fsdp_migrate."))


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
