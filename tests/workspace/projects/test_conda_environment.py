from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "channels:\n  - pytorch\ndependencies:\n  - python=3.10\n  - pytorch>=2.2\n  - pytorch-cuda=12.1\n",
            ">=2.2",
        ),
        ("dependencies:\n- 'pytorch >=2.2,<2.5'  # gpu\n- pip\n", ">=2.2"),
        ('dependencies:\n  - python\n  - pip:\n    - "torch>=2.4"\n    - -r requirements.txt\n', ">=2.4"),
        ("dependencies:\n  - conda-forge::pytorch>=2.3\n\n# pytorch>=2.1\nvariables:\n  - pytorch>=2.2\n", ">=2.3"),
        ('"dependencies":\r\n  - pytorch>=2.3\r\n', ">=2.3"),
        ("dependencies:\n  - pytorch=2.0.1=py3.10_cuda11.8_0\n", ">=2.1"),
        ("dependencies: []\n", ">=2.1"),
        ("apiVersion: v1\nspec:\n  dependencies:\n  - pytorch>=2.4\n", ">=2.1"),
    ],
)
def test_dependencies(text: str, expected: str) -> None:
    assert torch_of({"environment.yml": text}) == expected


@pytest.mark.parametrize("name", ["environment.yaml", "environment-gpu.yml"])
def test_names(name: str) -> None:
    assert torch_of({name: "dependencies:\n  - pytorch>=2.4\n"}) == ">=2.4"


def test_a_list_that_is_written_otherwise_is_told() -> None:
    project = project_of("a.py", {"environment.yml": "dependencies: [python, pytorch>=2.4]\n"})
    assert str(project.torch) == ">=2.1"
    assert project.warnings == (
        "environment.yml: its dependencies are not a list with one entry per line, and are ignored",
    )
