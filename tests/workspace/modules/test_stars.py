"""Names that come through star imports, and the files that are not looked into for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.source import lines_of
from fsdp_migrate.workspace.modules.sketch import Sketch
from tests.workspace.modules.trees import PUBLIC, SAVE, codes_of, grow, modules_of, report_of

ROOT = "from .models import *\nfrom .wrap import *\n"


def test_a_name_is_followed_through_star_imports_over_those_of_others(tmp_path: Path) -> None:
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": ROOT, "lib/models.py": "from .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap/__init__.py": "from .inner import *\n", "lib/wrap/inner.py": PUBLIC})
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


def test_a_name_comes_through_a_star_import_from_torch_though_no_file_writes_it(tmp_path: Path) -> None:
    tree = {"a.py": "import lib\n\nlib.FullyShardedDataParallel.full_optim_state_dict(model, optim)\n"}
    grow(
        tmp_path,
        {**tree, "lib/__init__.py": "from .all import *\n", "lib/all.py": "from torch.distributed.fsdp import *\n"},
    )
    assert "FSDP101" in codes_of(tmp_path, "a.py")


def test_a_name_comes_through_a_star_import_from_a_module_that_gives_it_late(tmp_path: Path) -> None:
    late = 'def __getattr__(name):\n    return getattr(import_module("lib.inner"), name)\n'
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": "from .late import *\n", "lib/late.py": late}
    grow(tmp_path, {**tree, "lib/inner.py": PUBLIC})
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


@pytest.mark.parametrize(
    "late",
    [
        "def __getattr__(name):\n    return find(name)\n",
        "def  __getattr__ (\n    name, default=None\n):\n    return find(name)\n",
        "from .lazy import __getattr__\n",
        "from .lazy import (\n    find as __getattr__\n)\n",
        "__getattr__, __dir__ = attach()\n",
        "__getattr__: object = attach()\n",
        "globals()['__getattr__'] = attach()\n",
    ],
)
def test_a_module_may_give_names_late_in_many_ways(late: str) -> None:
    assert Sketch(late.encode()).loads_lazily


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def __getattr__(self, name):\n        return super().__getattr__(name)\n",
        "class A:\n    def __getattr__(\n        self,\n        name,\n    ): ...\n",
        "# see __getattr__ of a\na.__getattr__ = find\n",
    ],
)
def test_what_classes_give_late_the_module_does_not(text: str) -> None:
    assert not Sketch(text.encode()).loads_lazily


def test_an_import_in_a_doctest_is_none() -> None:
    text = (
        '"""\n>>> from a import b\n... from c import (\n...     d)\n"""\n...; from e import f\nif x: from g import *\n'
    )
    sketch = Sketch(text.encode())
    assert sketch.imports == {"f": ("e.f",)}
    assert sketch.stars == ("g",)


def test_an_import_behind_a_prompt_in_a_notebook_is_one() -> None:
    text = '{"source": [\n   ">>> from a import b\\n",\n   "... from c import d"]}'
    assert {"b", "d"} <= Sketch(lines_of(text.encode(), "x.ipynb")).imports.keys()


def test_imports_are_told_apart_only_in_files_that_write_the_name(tmp_path: Path) -> None:
    tree = {"a.py": f"{PUBLIC}from lib import helper\n{SAVE}", "lib/__init__.py": ROOT, "lib/wrap.py": "helper = 1\n"}
    grow(tmp_path, {**tree, "lib/models.py": "import torch\nfrom torch import nn\n"})
    modules = modules_of(tmp_path)
    report_of(tmp_path, "a.py", modules=modules)
    sketch = modules.texts.sketch(str(tmp_path / "lib" / "models.py"))
    assert sketch is not None
    assert "imports" not in vars(sketch)


def test_a_report_depends_on_files_that_do_not_write_a_name_but_may_some_day(tmp_path: Path) -> None:
    tree = {"a.py": f"{PUBLIC}from lib import helper\n{SAVE}", "lib/__init__.py": ROOT, "lib/wrap.py": ""}
    grow(tmp_path, {**tree, "lib/models.py": "import torch\n"})
    consulted = {Path(one.path).name for one in report_of(tmp_path, "a.py").consulted}
    assert consulted == {"__init__.py", "wrap.py", "models.py"}
