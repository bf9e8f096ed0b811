from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[options]\ninstall_requires =\n    numpy\n    # the oldest that we test\n    torch>=2.2\n", ">=2.2"),
        ("[options]\ninstall_requires = numpy; torch>=2.3; einops\n", ">=2.3"),
        (
            "[options]\ninstall_requires =\n    torch>=2.3; sys_platform == 'linux'\n    torch>=2.4; os_name == 'nt'\n",
            ">=2.3",
        ),
        ("[options.extras_require]\ntrain =\n    torch>=2.5\ndocs = sphinx%(x)s\n", ">=2.5"),
        ("[options]\ninstall_requires = torch\n[options.extras_require]\nnew = torch>=2.5\n", ">=2.1"),
        ("[metadata]\nname = x\n[tool:pytest]\naddopts = torch>=2.5\n", ">=2.1"),
    ],
)
def test_requirements(text: str, expected: str) -> None:
    assert torch_of({"setup.cfg": text}) == expected


def test_lists_in_files() -> None:
    text = "[options]\ninstall_requires = file: reqs/a.in, reqs/b.in\n[options.extras_require]\nold = file: reqs/c.in\n"
    files: dict[str, str | bytes] = {"setup.cfg": text, "reqs/a.in": "numpy\n", "reqs/b.in": "torch>=2.6\n"}
    assert torch_of(files | {"reqs/c.in": "torch>=2.4\n"}) == ">=2.4"


def test_a_list_that_is_missing_is_told() -> None:
    project = project_of("a.py", {"setup.cfg": "[options]\ninstall_requires = file: reqs.in\n"})
    assert project.warnings == ("reqs.in: cannot be read: No such file or directory; its requirements are ignored",)


def test_what_is_no_setup_cfg_is_told() -> None:
    (warning,) = project_of("a.py", {"setup.cfg": "torch>=2.4\n"}).warnings
    assert warning.startswith("setup.cfg: cannot be read: File contains no section headers.")
    assert "\n" not in warning
