from __future__ import annotations

import os

import pytest

from fsdp_migrate.workspace.settings import ConfigFileError, Layer
from fsdp_migrate.workspace.settings.nearest import ConfigFiles
from tests.trees import plant, project_of

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


def test_the_nearest_counts_whole_whatever_those_above_state() -> None:
    files: dict[str, str | bytes] = {
        "pyproject.toml": '[tool.fsdp-migrate]\ntorch = ">=2.5"\nhints = true\n',
        "a/fsdp-migrate.toml": 'select = ["FSDP1"]\n',
        "a/requirements.txt": "torch>=2.3\n",
    }
    assert str(project_of("a/b/c.py", files).torch) == ">=2.3"
    found = ConfigFiles().at(os.path.abspath("a/b"))
    assert found is not None
    assert (found.layer.select, found.layer.hints, found.layer.torch) == (("FSDP1",), None, None)


def test_a_file_that_is_given_counts_for_all_and_isolated_for_none() -> None:
    plant({"pyproject.toml": OWN, "a/other.toml": "hints = true\n", "a/pyproject.toml": "[project]\nname = 'a'\n"})
    given = ConfigFiles("a/other.toml").at(os.getcwd())
    assert given is not None
    assert (given.folder, given.layer) == (os.path.abspath("a"), Layer(hints=True))
    assert ConfigFiles(isolated=True).at(os.getcwd()) is None
    with pytest.raises(ConfigFileError, match=r"^there is no \[tool.fsdp-migrate\] in it$"):
        ConfigFiles("a/pyproject.toml")


def test_names_that_are_known_spare_a_look_at_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    plant({"a/b/x.py": ""})
    files = ConfigFiles()
    files.at(os.path.abspath("a"))
    monkeypatch.setattr(os.path, "exists", lambda path: pytest.fail(f"looked for {path}"))
    assert files.at(os.path.abspath("a/b"), {"x.py"}) is None


@pytest.mark.parametrize(
    "text", ["[tool.fsdp-migrate]\n", 'name = "fsdp-migrate"\n', "[tool.other]\nfsdp-migrate = 1\n"]
)
def test_a_table_without_a_range_decides_nothing(text: str) -> None:
    assert str(project_of("a/b.py", {"a/pyproject.toml": text, "requirements.txt": "torch>=2.4\n"}).torch) == ">=2.4"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('torch = "banana"', "torch: not a torch version range: 'banana'; write it like '>=2.1' or '>=2.1,<2.16'"),
        ('torch = ""', "torch: no known torch release (1.11.0 to 2.15.0) is in ''; write it like '>=2.1'"),
        ("torch = 2.1", "torch: expected a range such as '>=2.1', not 2.1"),
        (
            'torhc = ">=2.1"',
            "'torhc' is not a setting of fsdp-migrate (did you mean torch?); `fsdp-migrate config` lists them",
        ),
        ('select = "FSDP1"', "select: expected a list of rules such as ['FSDP1', 'FSDP303'], not \"FSDP1\""),
        (
            'ignore = ["clip-grad"]',
            "ignore: no rule is called 'clip-grad' (did you mean clip-grad-norm?); `fsdp-migrate rules` lists them",
        ),
        ("select = ['']", "select: no rule is called ''; `fsdp-migrate rules` lists them"),
        (
            'fail-on = "depricated"',
            "fail-on: 'depricated' is none of breaks, changes, deprecated, hint (did you mean deprecated?)",
        ),
        ('hints = "yes"', 'hints: expected true or false, not "yes"'),
        ("unsafe-fixes = 1", "unsafe-fixes: expected true or false, not 1"),
        (
            "fixes = { FSDP1 = 'sage' }",
            "fixes: 'sage' is none of safe, unsafe, manual (did you mean safe?)",
        ),
        (
            "per-file-ignores = { 'tests/' = 'FSDP1' }",
            "per-file-ignores: expected a list of rules such as ['FSDP1', 'FSDP303'], not \"FSDP1\"",
        ),
        ("exclude = ['# not this']", "exclude: '# not this' matches no file; write patterns as in a .gitignore"),
        ("exclude = [1]", "exclude: expected a list of patterns such as ['third_party/', '*_pb2.py'], not 1"),
        ("baseline = []", "baseline: expected a path, not []"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_file(setting: str, message: str) -> None:
    with pytest.raises(ConfigFileError) as error:
        project_of("src/a.py", {"pyproject.toml": f"[tool.fsdp-migrate]\n{setting}\n"})
    assert (error.value.path, str(error.value)) == ("pyproject.toml", message)


def test_the_header_of_pyproject_in_the_file_of_its_own_is_told_as_such() -> None:
    with pytest.raises(
        ConfigFileError, match=r"^'tool' is not a setting of fsdp-migrate; the header \[tool.fsdp-migrate\] is"
    ):
        project_of("a.py", {"fsdp-migrate.toml": "[tool.fsdp-migrate]\nhints = true\n"})


@pytest.mark.parametrize("name", ["fsdp_migrate", "fsdpmigrate", "FSDP-Migrate"])
def test_a_table_whose_name_is_spelt_otherwise_is_told_not_to_count(name: str) -> None:
    plant({"pyproject.toml": f"[tool.{name}]\nhints = true\n"})
    files = ConfigFiles()
    assert files.at(os.getcwd()) is None
    assert files.at(os.path.abspath("src")) is None
    assert files.warnings == [
        f"pyproject.toml: [tool.{name}] is not read, only [tool.fsdp-migrate] is: rename the table"
    ]


def test_a_table_that_nobody_can_read_is_told_not_to_count() -> None:
    plant({"pyproject.toml/a": ""})
    files = ConfigFiles()
    assert files.at(os.getcwd()) is None
    assert files.warnings == ["pyproject.toml: cannot be read: Is a directory; a [tool.fsdp-migrate] in it is ignored"]


def test_broken_toml_that_names_this_tool_is_an_error() -> None:
    with pytest.raises(ConfigFileError, match=r"^cannot be read: no valid TOML: "):
        project_of("src/a.py", {"pyproject.toml": "[tool.fsdp-migrate]\ntorch = >=2.1\n"})
