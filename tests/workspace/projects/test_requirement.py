from __future__ import annotations

import packaging.requirements
import pytest

from fsdp_migrate.workspace.projects.requirement import (
    _PLAIN_TORCH,
    Requirement,
    UnreadableError,
    _specifiers,
    conda_requirement,
    pip_requirement,
    poetry_requirement,
)


def bound(requirement: Requirement | None) -> str | None:
    assert requirement is not None
    return None if requirement.bound is None else str(requirement.bound)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch", None),
        ("torch>=2.4", ">=2.4"),
        ("torch >= 2.4.0", ">=2.4.0"),
        ("Torch>2.4", ">2.4"),
        ("torch~=2.4", ">=2.4"),
        ("torch (>=2.4,<3)", ">=2.4"),
        ("torch<2.6,>=2.2,!=2.3.0", ">=2.2"),
        ("torch>=2.2,>2.3", ">2.3"),
        ("torch==2.4", None),
        ("torch==2.4.*", None),
        ("torch===2.4.0", None),
        ("torch==2.0.1+cu118", None),
        ("torch<2.6", None),
        ("torch!=2.0.0", None),
        ("torch[opt-einsum]>=2.2 ; python_version >= '3.9'", ">=2.2"),
        ("torch>=2.6.0.dev20241112", ">=2.6.0"),
        ("torch>2.6rc1", ">=2.6"),
        ("torch @ https://download.pytorch.org/whl/cpu/torch-2.1.0-cp311-cp311-linux_x86_64.whl", None),
    ],
)
def test_pip_only_what_bounds_from_below_is_a_bound(text: str, expected: str | None) -> None:
    assert bound(pip_requirement(text)) == expected


@pytest.mark.parametrize(
    "text", ["torch", "torch>=2.4", " Torch >= 2.4 , <3.0 ", "torch~=2.4", "torch==2.4.1", "torch!=2.0.0,>1.13"]
)
def test_pip_the_usual_form_is_read_as_packaging_reads_it(text: str) -> None:
    assert _PLAIN_TORCH.fullmatch(text)
    read = packaging.requirements.Requirement(text.strip()).specifier
    assert sorted(_specifiers(text)) == sorted((one.operator, one.version) for one in read)


@pytest.mark.parametrize(
    "text", ["torch>=2", "torch==2.*", "torch>=2.4rc1", "torch[opt]>=2.4", "torch>=2.4; x", "torch>="]
)
def test_pip_any_other_form_is_left_to_packaging(text: str) -> None:
    assert not _PLAIN_TORCH.fullmatch(text)


@pytest.mark.parametrize(
    "text", ["torchvision>=0.20", "pytorch-lightning>=2", "torch-xla>=2.1", "torch_optimizer>1", ""]
)
def test_pip_other_distributions_are_not_torch(text: str) -> None:
    assert pip_requirement(text) is None


@pytest.mark.parametrize("text", ["torch is needed", "torch must be installed, see the README"])
def test_pip_prose_is_not_a_requirement(text: str) -> None:
    assert pip_requirement(text) is None


@pytest.mark.parametrize("text", ["torch>=", "torch>>2", "torch>=2.0.1+cu118", "torch>=two", "torch=2.1", "torch[>=2"])
def test_pip_what_cannot_be_read_is_told_as_written(text: str) -> None:
    with pytest.raises(UnreadableError) as error:
        pip_requirement(f" {text} ")
    assert str(error.value) == text


def test_the_text_of_a_requirement_is_without_its_marker() -> None:
    requirement = pip_requirement("torch >= 2.1 ; sys_platform == 'linux'")
    assert requirement is not None
    assert requirement.text == "torch >= 2.1"


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("^2.1", ">=2.1"),
        ("~2.2.1", ">=2.2.1"),
        ("~=2.2", ">=2.2"),
        (">=2.3,<3", ">=2.3"),
        (">= 2.3 < 3", ">=2.3"),
        ("2.1.0", None),
        ("2.*", None),
        ("*", None),
        ("^1.13 || ^2.3", ">=1.13"),
        ("^2.4|^2.2", ">=2.2"),
        ("2.0.1 || ^2.3", None),
        ({"version": "^2.4", "source": "pytorch", "optional": True}, ">=2.4"),
        ({"git": "https://github.com/pytorch/pytorch.git"}, None),
    ],
)
def test_poetry(constraint: object, expected: str | None) -> None:
    assert bound(poetry_requirement(constraint)) == expected


@pytest.mark.parametrize("constraint", ["^two", "", "^2.1 ||", "latest", 2.1, {"version": 2}])
def test_poetry_what_cannot_be_read_is_refused(constraint: object) -> None:
    with pytest.raises(UnreadableError, match=r"^torch = "):
        poetry_requirement(constraint)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytorch", None),
        ("pytorch>=2.2", ">=2.2"),
        ("pytorch >=2.2,<2.5", ">=2.2"),
        ("pytorch >= 2.2", ">=2.2"),
        ("pytorch>2.2 py3.11_cuda12.1*", ">2.2"),
        ("conda-forge::pytorch>=2.3", ">=2.3"),
        ("conda-forge/linux-64::pytorch-gpu>=2.3", ">=2.3"),
        ("pytorch=2.0", None),
        ("pytorch=2.0=cuda118*", None),
        ("pytorch==2.0.1", None),
        ("pytorch 2.0.*", None),
        ("pytorch 2.0.1 py3.10_cuda11.8", None),
        ("pytorch>=2.4|>=2.2,<2.3", ">=2.2"),
    ],
)
def test_conda(text: str, expected: str | None) -> None:
    assert bound(conda_requirement(text)) == expected


@pytest.mark.parametrize("text", ["pytorch-cuda=12.1", "pytorch-lightning>=2", "pytorch_geometric", "python>=3.10"])
def test_conda_other_packages_are_not_pytorch(text: str) -> None:
    assert conda_requirement(text) is None


@pytest.mark.parametrize("text", ["pytorch>=", "pytorch>=two", "pytorch latest"])
def test_conda_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        conda_requirement(text)
