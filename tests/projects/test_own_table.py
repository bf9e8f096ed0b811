from __future__ import annotations

import pytest

from fsdp_migrate.config import ConfigFileError
from tests.projects.trees import project_of

OWN = '[tool.fsdp-migrate]\ntorch = ">=2.2,<2.8"\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [("pyproject.toml", OWN), ("fsdp-migrate.toml", 'torch = ">=2.2,<2.8"\n')],
)
def test_a_range_that_is_stated_counts_whole(name: str, text: str) -> None:
    project = project_of("src/a.py", {name: text, "requirements.txt": "torch>=2.4\n"})
    assert (project.root, str(project.torch), project.source) == (".", ">=2.2,<2.8", f"set in {name}")


def test_below_the_default_it_is_taken_at_its_word() -> None:
    project = project_of("a.py", {"fsdp-migrate.toml": 'torch = ">=1.12"\n'})
    assert (str(project.torch), project.note) == (">=1.12", None)


def test_the_nearest_counts_and_goes_before_requirements_that_are_nearer() -> None:
    files: dict[str, str | bytes] = {
        "pyproject.toml": OWN,
        "a/fsdp-migrate.toml": 'torch = "2.3"\n',
        "a/b/pyproject.toml": '[project]\ndependencies = ["torch>=2.6"]\n',
    }
    project = project_of("a/b/c.py", files)
    assert (project.root, str(project.torch)) == ("a", ">=2.3")


def test_the_file_of_its_own_goes_before_pyproject() -> None:
    assert str(project_of("a.py", {"pyproject.toml": OWN, "fsdp-migrate.toml": 'torch = ">=2.5"\n'}).torch) == ">=2.5"


@pytest.mark.parametrize(
    "text", ["[tool.fsdp-migrate]\n", 'name = "fsdp-migrate"\n', "[tool.other]\nfsdp-migrate = 1\n"]
)
def test_a_table_without_a_range_decides_nothing(text: str) -> None:
    assert str(project_of("a/b.py", {"a/pyproject.toml": text, "requirements.txt": "torch>=2.4\n"}).torch) == ">=2.4"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('torch = "banana"', "torch: not a torch version range: 'banana'; write it like '>=2.1' or '>=2.1,<2.16'"),
        ('torch = ""', "torch: no known torch release (1.11.0 to 2.15.0) lies in ''; write it like '>=2.1'"),
        ("torch = 2.1", "torch: a string is wanted, such as '>=2.1', not 2.1"),
        ('torhc = ">=2.1"', "'torhc' is no setting of fsdp-migrate (did you mean torch?)"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_file(setting: str, message: str) -> None:
    with pytest.raises(ConfigFileError) as error:
        project_of("src/a.py", {"pyproject.toml": f"[tool.fsdp-migrate]\n{setting}\n"})
    assert (error.value.path, str(error.value)) == ("pyproject.toml", message)


def test_broken_toml_that_names_this_tool_is_an_error() -> None:
    with pytest.raises(ConfigFileError, match=r"^cannot be read: no valid TOML: "):
        project_of("src/a.py", {"pyproject.toml": "[tool.fsdp-migrate]\ntorch = >=2.1\n"})
