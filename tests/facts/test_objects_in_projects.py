"""Where objects go through the files of a project."""

from __future__ import annotations

from pathlib import Path

from tests.facts.following import check_tree


def test_a_function_of_another_file(tmp_path: Path) -> None:
    check_tree(
        tmp_path,
        {"main.py": "import tools\ntools.use(OBJECT())\n", "tools.py": "def use(it):\n    it.seen()  # here\n"},
    )


def test_a_function_behind_a_star_among_others_that_are_not_known(tmp_path: Path) -> None:
    tree = {
        "main.py": "from elsewhere import *\nfrom tools import *\n\nuse(OBJECT())\n",
        "tools/__init__.py": "from .own import use\nfrom .others import *\nfrom missing import *\n",
        "tools/own.py": "def use(it):\n    it.seen()  # here\n",
        "tools/others.py": "import os\n",
    }
    check_tree(tmp_path, tree)


def test_a_function_that_two_stars_may_bring_is_not_known(tmp_path: Path) -> None:
    tree = {
        "main.py": "from missing import *\nfrom one import *\n\nuse(OBJECT())  # here\n",
        "one.py": "def other(it):\n    it.seen()\n",
    }
    check_tree(tmp_path, tree)
