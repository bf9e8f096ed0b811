from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of

SETUP = "from setuptools import setup\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('setup(install_requires=["numpy", "torch>=2.2"])', ">=2.2"),
        ('requires = ("torch>=2.3",)\nsetup(install_requires=requires)', ">=2.3"),
        ('BASE = ["torch>=2.4"]\nsetup(install_requires=BASE + ["numpy"])', ">=2.4"),
        ('r = []\nr += ["torch>=2.4"]\nsetup(install_requires=r)', ">=2.4"),
        ('r = []\nr.append("torch>=2.4")\nsetup(install_requires=r)', ">=2.4"),
        (
            'r = []\nif X:\n    r.extend(["torch>=2.4"])\nelse:\n    r = ["torch>=2.2"]\nsetup(install_requires=r)',
            ">=2.2",
        ),
        ('setup(install_requires="""\n  numpy\n  torch>=2.2\n""")', ">=2.2"),
        ('setup(extras_require={"torch": ["torch>=2.5"], "docs": ["sphinx"]})', ">=2.5"),
        (
            'e = {}\ne["t"] = ["torch>=2.5"]\ne["all"] = {d for x in e.values() for d in x}\nsetup(extras_require=e)',
            ">=2.5",
        ),
        ('e = {"t": []}\ne["t"].append("torch>=2.5")\nsetup(extras_require=e)', ">=2.5"),
        ('e = dict(t=["torch>=2.5"])\nsetup(extras_require=e)', ">=2.5"),
        ('kwargs = dict(install_requires=["torch>=2.6"])\nsetup(**kwargs)', ">=2.6"),
        ('kwargs = {"install_requires": ["torch>=2.6"]}\nsetup(**kwargs)', ">=2.6"),
        ('kwargs = {}\nkwargs["install_requires"] = ["torch>=2.6"]\nsetup(**kwargs)', ">=2.6"),
        ('def main():\n    deps: list = ["torch>=2.6"]\n    setup(install_requires=deps)\nmain()', ">=2.6"),
        ('setup(install_requires=["torch"], extras_require={"new": ["torch>=2.6"]})', ">=2.1"),
        ('setup(install_requires=["torch==2.0.1"])', ">=2.1"),
    ],
)
def test_literals_that_reach_the_requirements(text: str, expected: str) -> None:
    assert torch_of({"setup.py": SETUP + text}) == expected


@pytest.mark.parametrize(
    "text",
    [
        'setup(setup_requires=["torch>=2.6"], keywords=["torch>=2.6"], install_requires=[])',
        'setup(install_requires=[f"torch>={minimum}"])',
        'setup(install_requires=[r for r in lines if r != "torch>=2.6"])',
        'setup(install_requires=open("requirements.txt").read().splitlines(), description="torch>=2.6")',
        'other = ["torch>=2.6"]\nsetup(install_requires=parse())',
        'setup(extras_require={"torch>=2.6": ["numpy"]})',
        "r = r2\nr2 = r\nsetup(install_requires=r, x='torch')",
        "",
    ],
)
def test_what_does_not_reach_the_requirements_as_a_literal_does_not_count(text: str) -> None:
    assert torch_of({"setup.py": SETUP + text}) == ">=2.1"


def test_nothing_is_run() -> None:
    assert torch_of({"setup.py": 'raise SystemExit\nsetup(install_requires=["torch>=2.2"])\n'}) == ">=2.2"


def test_the_list_that_it_reads_is_read_too() -> None:
    files: dict[str, str | bytes] = {
        "setup.py": 'setup(install_requires=open("requirements.txt").readlines())',
        "requirements.txt": "torch>=2.3\n",
    }
    assert torch_of(files) == ">=2.3"


def test_one_that_does_not_parse_is_told_if_it_speaks_of_torch() -> None:
    project = project_of("a.py", {"setup.py": 'print "hello"\nsetup(install_requires=["torch>=2.4"])\n'})
    (warning,) = project.warnings
    assert warning.startswith("setup.py: cannot be read: it does not parse: Missing parentheses")
    assert torch_of({"setup.py": 'print "hello"\nsetup(install_requires=["numpy"])\n'}) == ">=2.1"


@pytest.mark.filterwarnings("error")
def test_python_does_not_warn_about_its_strings() -> None:
    assert torch_of({"setup.py": 'VERSION = "\\d"\nsetup(install_requires=["torch>=2.4"])\n'}) == ">=2.4"
