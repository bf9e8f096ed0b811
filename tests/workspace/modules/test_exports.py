"""What star imports take of a module with an `__all__`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_migrate.workspace.modules.sketch import exported
from tests.workspace.modules.trees import PUBLIC, SAVE, codes_of, grow, modules_of, report_of

PLAIN = [
    ("__all__ = ['A', \"b_1\"]", {"A", "b_1"}),
    ("__all__ = []\n", set()),
    ("__all__ = ()\n", set()),
    ("import x\n\n__all__ = (\n    'A',  # that one\n    # 'B',\n    'C',\n)  # all\nx = 1\n", {"A", "B", "C"}),
    ("__all__: list[str] = ['A']\r\nx = 1\r\n", {"A"}),
    ('"""A module."""\n\n__all__ = ["A"]\n\n\ndef f():\n    """Text."""\n', {"A"}),
]
NOT_PLAIN = [
    "A = 1\n",
    "__all__ = ['A']\n__all__ += ['B']\n",
    "__all__ = ['A']\n__all__.append('B')\n",
    "__all__ = ['A']\nglobals()['__all__'] = names()\n",
    "from .b import *\nfrom . import b\n__all__ = ['A'] + b.__all__\n",
    "__all__ = ['A'] + MORE\n",
    "__all__ = ['A'] \\\n    + MORE\n",
    "__all__ = ['A', *MORE]\n",
    "__all__ = ['A' 'B']\n",
    "__all__ = ['A', 'B' if x else 'C']\n",
    "__all__ = [name for name in dir()]\n",
    "__all__ = NAMES\n",
    "if x:\n    __all__ = ['A']\n",
    "if x: \\\n__all__ = ['A']\n",
    "__all__, B = ['A'], 1\n",
    "__all__ = ['A']; x = 1\n",
    "__all__ = ['A']\r__all_ = 1\r",
    "TEXT = '''\n__all__ = ['A']\n'''\n",
    'def f():\n    """\n__all__ = ["A"]\n\n    Text.\n    """\n    return 1\n',
    "__all__ = ['Ä']\n",
]


@pytest.mark.parametrize(("text", "names"), PLAIN)
def test_a_plain_list_says_what_a_star_import_takes(text: str, names: set[str]) -> None:
    assert exported(text.encode()) == names


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_whatever_is_not_plainly_a_list_says_nothing(text: str) -> None:
    assert exported(text.encode()) is None


@pytest.mark.parametrize("text", ["", "__all__ = ['FSDP']\n", *(text.replace("A", "Other") for text in NOT_PLAIN)])
def test_a_star_import_brings_what_may_be_in_the_list(text: str, tmp_path: Path) -> None:
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": "from .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": PUBLIC})
    (tmp_path / "lib" / "wrap.py").write_bytes((PUBLIC + text).encode())
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


def test_a_star_import_brings_nothing_that_is_not_in_a_plain_list(tmp_path: Path) -> None:
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": "from .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": f"{PUBLIC}__all__ = ['other']\n"})
    assert codes_of(tmp_path, "a.py") == []


def test_a_name_that_is_imported_by_itself_need_not_be_in_the_list(tmp_path: Path) -> None:
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": "from .wrap import FSDP\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": f"{PUBLIC}__all__ = ['other']\n"})
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


def test_a_listed_name_may_come_from_a_star_import_itself(tmp_path: Path) -> None:
    tree = {"a.py": f"from lib import FSDP\n{SAVE}", "lib/__init__.py": "from .wrap import *\n"}
    wrap = {"lib/wrap/__init__.py": "from .inner import *\n\n__all__ = ['FSDP']\n", "lib/wrap/inner.py": PUBLIC}
    grow(tmp_path, {**tree, **wrap})
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


def test_a_subclass_is_found_where_a_list_has_it(tmp_path: Path) -> None:
    cls = f"{PUBLIC}__all__ = ['Mine']\n\nclass Mine(FSDP):\n    pass\n"
    tree = {"a.py": f"from lib import Mine\n{SAVE.replace('FSDP', 'Mine')}", "lib/__init__.py": "from .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": cls})
    assert codes_of(tmp_path, "a.py") == ["FSDP101"]


def test_a_report_depends_on_the_lists_that_a_name_is_not_in(tmp_path: Path) -> None:
    tree = {"a.py": f"{PUBLIC}from lib import helper\n{SAVE}", "lib/__init__.py": "helper = 1\nfrom .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": "__all__ = ['other']\n"})
    consulted = {Path(one.path).name for one in report_of(tmp_path, "a.py").consulted}
    assert consulted == {"__init__.py", "wrap.py"}


def test_a_module_is_not_sketched_for_names_that_are_not_in_its_list(tmp_path: Path) -> None:
    tree = {"a.py": f"{PUBLIC}from lib import helper\n{SAVE}", "lib/__init__.py": "from .wrap import *\n"}
    grow(tmp_path, {**tree, "lib/wrap.py": "__all__ = ['other']\nhelper = 1\n"})
    modules = modules_of(tmp_path)
    report_of(tmp_path, "a.py", modules=modules)
    assert str(tmp_path / "lib" / "wrap.py") not in modules.texts._sketches
