"""The parent runs without torch; the ranks run with nothing but torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fsdp_migrate.verify

PACKAGE = Path(fsdp_migrate.verify.__file__).parent
WORKER = sorted((PACKAGE / "worker").glob("*.py"))


def imported(path: Path) -> set[str]:
    """The first names of all modules that a file imports absolutely."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize("path", WORKER, ids=lambda path: path.name)
def test_a_worker_module_imports_only_the_standard_library_and_torch(path: Path) -> None:
    assert imported(path) - set(sys.stdlib_module_names) <= {"torch"}


def test_importing_the_harness_imports_no_torch() -> None:
    code = "import sys, fsdp_migrate.verify, fsdp_migrate.verify.worker.protocol; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
