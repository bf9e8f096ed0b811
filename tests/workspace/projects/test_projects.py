from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.projects import Projects
from tests.trees import plant, project_of

METADATA = '[project]\nname = "x"\ndependencies = ["{}"]\n'


def ranges(paths: list[str]) -> dict[str, str]:
    projects = Projects()
    for path in paths:
        projects.of(SourceFile(path, path))
    return {project.root: str(project.torch) for project in projects.used}


def test_without_any_project_file_the_default_holds() -> None:
    project = project_of("src/a.py", {"src/a.py": ""})
    assert (project.root, str(project.torch)) == ("(no project)", ">=2.1")
    assert project.source == "default; no project file in this or a parent folder"


def test_the_lowest_bound_of_all_files_counts_and_its_file_is_named() -> None:
    project = project_of(
        "a.py",
        {
            "pyproject.toml": METADATA.format("torch>=2.4"),
            "requirements.txt": "torch>=2.3\n",
            "requirements-dev.txt": "torch\n",
            "environment.yml": "dependencies:\n  - pytorch=2.5\n",
        },
    )
    assert (str(project.torch), project.source) == (">=2.3", "requirements.txt requires torch>=2.3")
    assert project.note is None


def test_upper_bounds_pins_and_lock_files_do_not_narrow() -> None:
    project = project_of(
        "a.py",
        {
            "pyproject.toml": METADATA.format("torch>=2.2,<2.4"),
            "requirements.txt": "torch==2.6.0\n",
            "poetry.lock": '[[package]]\nname = "torch"\nversion = "2.6.0"\n',
            "uv.lock": '[[package]]\nname = "torch"\nversion = "2.6.0"\n',
        },
    )
    assert str(project.torch) == ">=2.2"
    assert str(project.torch.newest) == "2.15.0"


def test_a_pin_is_the_torch_that_is_left_behind() -> None:
    project = project_of("a.py", {"requirements.txt": "torch==2.0.1\n"})
    assert str(project.torch) == ">=2.1"
    assert project.source == "default; 'torch==2.0.1' in requirements.txt gives no lower bound"
    assert project.note is None


@pytest.mark.parametrize("bound", [">=1.6", ">=2.0.1", ">2.0", "~=1.13"])
def test_a_bound_below_the_default_is_raised_with_a_note(bound: str) -> None:
    project = project_of("a.py", {"pyproject.toml": METADATA.format(f"torch{bound}")})
    written = bound.replace("~=", ">=")
    assert str(project.torch) == ">=2.1"
    assert (
        project.note == f"pyproject.toml supports torch{written}; pass --torch '{written}' to check those releases, too"
    )
    assert project.source == f"default; {project.note}"


def test_a_bound_inside_the_oldest_minor_is_kept() -> None:
    project = project_of("a.py", {"pyproject.toml": METADATA.format("torch>=2.1.1")})
    assert (str(project.torch), project.note) == (">=2.1.1", None)


def test_a_bound_above_every_known_release_is_told_and_the_default_holds() -> None:
    project = project_of("a.py", {"setup.cfg": "[options]\ninstall_requires = torch>=99\n"})
    assert str(project.torch) == ">=2.1"
    assert project.warnings == ("setup.cfg: no known torch release is in '>=99'; torch>=2.1 is assumed",)


def test_a_file_that_may_not_be_read_is_told() -> None:
    plant({"requirements.txt/x": ""})
    project = Projects().of(SourceFile("a.py", "a.py"))
    assert str(project.torch) == ">=2.1"
    assert project.warnings == ("requirements.txt: cannot be read: Is a directory; its requirements are ignored",)


def test_packages_of_a_monorepo_keep_their_own() -> None:
    plant(
        {
            "pyproject.toml": METADATA.format("torch>=2.2"),
            "packages/a/pyproject.toml": METADATA.format("torch>=2.4"),
            "packages/b/setup.py": 'setup(install_requires=["torch>=2.6"])\n',
            "packages/c/pyproject.toml": METADATA.format("numpy"),
        }
    )
    assert ranges(["train.py", "packages/a/src/a/x.py", "packages/b/x.py", "packages/c/x.py"]) == {
        ".": ">=2.2",
        "packages/a": ">=2.4",
        "packages/b": ">=2.6",
        "packages/c": ">=2.1",
    }


def test_a_package_without_torch_says_so() -> None:
    project = project_of("c/x.py", {"requirements.txt": "torch>=2.4\n", "c/pyproject.toml": METADATA.format("numpy")})
    assert project.source == "default; c/pyproject.toml does not require torch"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "pytest\n"),
        ("environment.yml", "dependencies:\n  - python\n"),
        ("Pipfile", '[packages]\nnumpy = "*"\n'),
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n"),
        ("setup.cfg", "[flake8]\nmax-line-length = 100\n"),
        ("setup.py", "def setup(stage):\n    import torch\n"),
        ("setup.py", "from setuptools import setup\nsetup(ext_modules=[CUDAExtension('torch_x', [])])\n"),
    ],
)
def test_a_file_that_neither_describes_a_package_nor_speaks_of_torch_is_passed_over(name: str, text: str) -> None:
    project = project_of("tests/x.py", {"pyproject.toml": METADATA.format("torch>=2.4"), f"tests/{name}": text})
    assert (project.root, str(project.torch)) == (".", ">=2.4")


def test_nothing_above_the_repository_counts() -> None:
    plant({"requirements.txt": "torch>=2.6\n", "repo/.git": "gitdir: elsewhere\n", "repo/src/a.py": ""})
    assert ranges(["repo/src/a.py"]) == {"(no project)": ">=2.1"}


def test_a_range_stated_above_the_repository_counts() -> None:
    plant({"fsdp-migrate.toml": 'torch = ">=2.6"\n', "repo/.git": "gitdir: elsewhere\n"})
    assert ranges(["repo/src/a.py"]) == {".": ">=2.6"}


def test_text_from_stdin_belongs_where_its_name_says() -> None:
    plant({"requirements.txt": "torch>=2.2\n", "sub/requirements.txt": "torch>=2.4\n"})
    assert str(Projects().of(SourceFile("-", "sub/new.py", b"")).torch) == ">=2.4"
    assert str(Projects().of(SourceFile("-", "<stdin>", b"")).torch) == ">=2.2"


def test_folders_are_shown_from_the_current_one_where_that_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    plant({"pyproject.toml": METADATA.format("torch>=2.4"), "src/deep/a.py": ""})
    top = Path.cwd()
    monkeypatch.chdir("src")
    project = Projects().of(SourceFile("deep/a.py", "deep/a.py"))
    assert (project.root, project.source) == ("..", f"{os.path.join('..', 'pyproject.toml')} requires torch>=2.4")
    monkeypatch.chdir(top.anchor)
    relative = os.path.relpath(top)
    assert Projects().of(SourceFile(f"{relative}/src/x.py", "x.py")).root == relative


def test_every_folder_is_listed_once_however_many_files_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    plant({"pyproject.toml": METADATA.format("torch>=2.4"), "a/b/x.py": "", "a/c/y.py": ""})
    listed = []
    real = os.listdir

    def listdir(folder: str) -> list[str]:
        listed.append(os.path.relpath(folder))
        return real(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    projects = Projects()
    for number in range(1000):
        projects.of(SourceFile(f"a/{'bc'[number % 2]}/{number}.py", ""))
    inside = [folder for folder in listed if not folder.startswith("..")]
    assert sorted(inside) == [".", "a", "a/b", "a/c"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_listed_has_no_project_files() -> None:
    plant({"requirements.txt": "torch>=2.4\n", "sub/a.py": ""})
    Path("sub").chmod(0o111)
    try:
        assert ranges(["sub/a.py"]) == {".": ">=2.4"}
    finally:
        Path("sub").chmod(0o755)
