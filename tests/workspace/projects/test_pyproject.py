from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of


def torch_of_pyproject(text: str) -> str:
    return torch_of({"pyproject.toml": text})


def test_dependencies() -> None:
    assert torch_of_pyproject('[project]\ndependencies = ["numpy", "torch>=2.4,<2.7"]\n') == ">=2.4"


def test_optional_dependencies() -> None:
    text = """
        [project]
        name = "x"
        [project.optional-dependencies]
        train = ["accelerate", "torch>=2.3"]
        docs = ["sphinx"]
    """
    assert torch_of_pyproject(text) == ">=2.3"


def test_dependency_groups_whatever_they_include() -> None:
    text = """
        [dependency-groups]
        all = [{include-group = "train"}, {include-group = "test"}, "ruff"]
        train = ["torch>=2.5"]
        test = ["pytest"]
    """
    assert torch_of_pyproject(text) == ">=2.5"


def test_extras_lower_the_bound_of_the_dependencies() -> None:
    text = """
        [project]
        dependencies = ["torch>=2.4"]
        optional-dependencies = {old = ["torch>=2.2"], new = ["torch>=2.6"]}
    """
    assert torch_of_pyproject(text) == ">=2.2"


def test_extras_do_not_raise_a_dependency_that_admits_any_torch() -> None:
    text = """
        [project]
        dependencies = ["torch"]
        optional-dependencies = {fp8 = ["torch>=2.6"]}
    """
    assert torch_of_pyproject(text) == ">=2.1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "^2.2"\n', ">=2.2"),
        ('[tool.poetry.dependencies]\nTorch = {version = "~2.3", optional = true}\n', ">=2.3"),
        (
            "[tool.poetry.dependencies]\ntorch = ["
            '{version = ">=2.4", markers = "sys_platform == \'linux\'"}, {version = ">=2.2", platform = "darwin"}]\n',
            ">=2.2",
        ),
        ('[tool.poetry.group.train.dependencies]\ntorch = "^2.5"\n', ">=2.5"),
        ('[tool.poetry.dev-dependencies]\ntorch = "^2.6"\n', ">=2.6"),
        (
            '[tool.poetry.dependencies]\ntorch = "2.0.1"\n[tool.poetry.group.dev.dependencies]\ntorch = "^2.6"\n',
            ">=2.1",
        ),
        ('[project]\nname = "x"\ndependencies = ["torch (>=2.4,<3.0)"]\n[tool.poetry]\n', ">=2.4"),
    ],
)
def test_poetry(text: str, expected: str) -> None:
    assert torch_of_pyproject(text) == expected


@pytest.mark.parametrize("files", ['"reqs/base.txt"', '["reqs/other.txt", "reqs/base.txt"]'])
def test_lists_that_setuptools_reads_from_files(files: str) -> None:
    text = f'[project]\ndynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = {{file = {files}}}\n'
    tree: dict[str, str | bytes] = {
        "pyproject.toml": text,
        "reqs/base.txt": "torch>=2.4\n",
        "reqs/other.txt": "numpy\n",
    }
    assert torch_of(tree) == ">=2.4"


def test_extras_that_setuptools_reads_from_files() -> None:
    text = """
        [project]
        dependencies = ["torch>=2.6"]
        [tool.setuptools.dynamic]
        optional-dependencies = {old = {file = "reqs/old.txt"}}
    """
    assert torch_of({"pyproject.toml": text, "reqs/old.txt": "torch>=2.4\n"}) == ">=2.4"


@pytest.mark.parametrize(
    "text",
    [
        '[build-system]\nrequires = ["torch>=2.6"]\n',
        '[tool.uv]\nconstraint-dependencies = ["torch>=2.6"]\n',
        '[project]\ndependencies = "torch>=2.6"\n',
        '[project]\nkeywords = ["torch>=2.6"]\n',
        '[project.optional-dependencies]\nx = "torch>=2.6"\ny = [["torch>=2.6"]]\n',
        "project = 1\ndependency-groups = 2\ntool = 3\n",
        '[tool.poetry]\ndependencies = "torch>=2.6"\ngroup = {x = 1}\n',
        '[tool.setuptools.dynamic]\ndependencies = {attr = "x.y"}\n',
        "[tool.setuptools.dynamic]\ndependencies = {file = 5}\n",
    ],
)
def test_what_is_no_list_of_requirements_gives_no_bound(text: str) -> None:
    assert torch_of_pyproject(text) == ">=2.1"


def test_a_byte_order_mark_is_no_trouble() -> None:
    assert torch_of({"pyproject.toml": b'\xef\xbb\xbf[project]\r\ndependencies = ["torch>=2.4"]\r\n'}) == ">=2.4"


def test_broken_toml_is_told_with_its_place() -> None:
    project = project_of("train.py", {"pyproject.toml": "[project]\ndependencies = torch>=2.4\n"})
    (warning,) = project.warnings
    assert str(project.torch) == ">=2.1"
    assert warning.startswith("pyproject.toml: cannot be read: no valid TOML: ")
    assert "(at line 2, column 16)" in warning
    assert warning.endswith("; its requirements are ignored")
