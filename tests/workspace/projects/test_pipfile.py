from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[packages]\nnumpy = "*"\ntorch = ">=2.2,<3"\n', ">=2.2"),
        ('[packages]\ntorch = {version = "~=2.3", index = "pytorch"}\n', ">=2.3"),
        ('[dev-packages]\ntorch = ">=2.4"\n', ">=2.4"),
        ('[packages]\ntorch = "*"\n[dev-packages]\ntorch = ">=2.4"\n', ">=2.1"),
        ('[packages]\ntorch = "==2.0.1"\n', ">=2.1"),
        ('[packages]\ntorch = {git = "https://github.com/pytorch/pytorch.git"}\n', ">=2.1"),
    ],
)
def test_packages(text: str, expected: str) -> None:
    assert torch_of({"Pipfile": text, "Pipfile.lock": '{"default": {"torch": {"version": ">=2.6"}}}'}) == expected


@pytest.mark.parametrize(("value", "shown"), [('"latest"', "torch latest"), ("2.4", "torch = 2.4")])
def test_what_cannot_be_read_is_told(value: str, shown: str) -> None:
    project = project_of("a.py", {"Pipfile": f"[packages]\ntorch = {value}\n"})
    assert project.warnings == (f"Pipfile: the requirement {shown!r} cannot be parsed, and is ignored",)
