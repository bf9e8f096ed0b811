from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fsdp_migrate.targets.modernise.checkpoint.storage_classes import METHODS, SINCE
from fsdp_migrate.torch_api import RELEASES
from fsdp_migrate.torch_api.data import exists
from tests.rules.checks import check_manual, check_noop, lint
from tests.workspace.modules.trees import codes_of, grow

IMPORT = "from abc import ABC, abstractmethod\nfrom torch.distributed.checkpoint import StorageReader, StorageWriter\n"
BOTH = "    reset = None\n    def validate_checkpoint_id(cls, checkpoint_id): ...\n"


@pytest.mark.parametrize("name", ["StorageWriter", "StorageReader"])
def test_the_methods_are_as_old_as_the_rule_says_and_abstract(name: str) -> None:
    for method in METHODS:
        path = f"torch.distributed.checkpoint.storage.{name}.{method}"
        assert all(exists(path, release) is (release >= SINCE) for release in RELEASES if release.major > 1)
    storage = pytest.importorskip("torch.distributed.checkpoint")
    cls = getattr(storage, name)
    assert inspect.isabstract(cls)
    assert set(METHODS) <= cls.__abstractmethods__


@pytest.mark.parametrize(
    "text",
    [
        "class Mine(StorageWriter): ...\n",
        "class Mine(ABC, StorageReader):\n    def read_data(self, plan, planner): ...\n",
        "class Base(StorageWriter): ...\nclass Mine(Base): ...\n",
        "class Mixin:\n    def write(self): ...\nclass Mine(Mixin, StorageWriter): ...\n",
        "def make():\n    class Mine(StorageWriter): ...\n    return Mine\n",
        f"class Mixin:\n{BOTH}class Mine(StorageWriter, Mixin): ...\n",
        "class Base(StorageWriter): ...\nclass Other(Base): ...\nclass Mine(Other, Base): ...\n",
    ],
)
def test_a_class_without_the_methods_is_reported_once(text: str) -> None:
    check_manual(IMPORT + text, "FSDP701", "`def reset(self, checkpoint_id=None)` and `@classmethod def validate")
    check_noop(IMPORT + text, "FSDP701", torch=">=2.0,<2.3")


def test_the_place_is_the_name_of_the_class() -> None:
    (found,) = lint(f"{IMPORT}@register\nclass Mine(StorageWriter): ...\n", "FSDP701")
    assert (found.line, found.column, found.end_column) == (4, 7, 11)


def test_that_a_release_lacks_the_module_is_told_as_well() -> None:
    text = "import torch.distributed.checkpoint as dcp\nclass Mine(dcp.StorageWriter): ...\n"
    assert {finding.code for finding in lint(text, "FSDP", ">=1.13")} == {"FSDP600", "FSDP701"}


def test_only_what_is_missing_is_named() -> None:
    text = f"{IMPORT}class Mine(StorageWriter):\n    def reset(self, checkpoint_id=None): ...\n"
    check_manual(text, "FSDP701", "add `@classmethod def validate_checkpoint_id(cls, checkpoint_id)`")


@pytest.mark.parametrize(
    "text",
    [
        f"class Mine(StorageWriter):\n{BOTH}",
        f"class Base(StorageWriter):\n{BOTH}class Mine(Base): ...\n",
        f"class Mixin:\n{BOTH}class Mine(Mixin, StorageWriter): ...\n",
        f"class Base(StorageWriter): ...\nclass Other(Base):\n{BOTH}class Mine(Base, Other): ...\n",
        "class Mine(StorageWriter):\n    from lib import reset, validate_checkpoint_id\n",
        f"class Mine(StorageWriter):\n    if NEW:\n    {BOTH.replace('    def', '        def')}",
        "from lib import Mixin\nclass Mine(Mixin, StorageWriter): ...\n",
        "class Mine(StorageWriter):\n    @abstractmethod\n    def open(self): ...\n",
        "class Mine(make(StorageWriter)): ...\n",
        "class StorageWriter: ...\nclass Mine(StorageWriter): ...\n",
        "import torch\nif torch.__version__ < '2.3':\n    class Mine(StorageWriter): ...\n",
    ],
)
def test_what_has_the_methods_or_may_have_them_is_left_alone(text: str) -> None:
    check_noop(IMPORT + text, "FSDP701")


@pytest.mark.parametrize(("mixin", "codes"), [(BOTH, []), ("    x = 1\n", ["FSDP701"])])
def test_a_base_of_the_project_is_looked_into(mixin: str, codes: list[str], tmp_path: Path) -> None:
    grow(tmp_path, {"lib/__init__.py": "", "lib/mixin.py": f"class Mixin:\n{mixin}"})
    grow(tmp_path, {"lib/writer.py": f"{IMPORT}from .mixin import Mixin\nclass Mine(Mixin, StorageWriter): ...\n"})
    assert codes_of(tmp_path, "lib/writer.py", ">=2.1") == codes


@pytest.mark.parametrize(("derived", "codes"), [(BOTH, []), ("    x = 1\n", ["FSDP701"])])
def test_a_class_that_another_module_completes_is_not_made_itself(
    derived: str, codes: list[str], tmp_path: Path
) -> None:
    grow(tmp_path, {"lib/__init__.py": "", "lib/base.py": f"{IMPORT}class Base(StorageWriter): ...\n"})
    grow(tmp_path, {"lib/writer.py": f"from .base import Base\nclass Mine(Base):\n{derived}"})
    assert codes_of(tmp_path, "lib/base.py", ">=2.1") == codes
