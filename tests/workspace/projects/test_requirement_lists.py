from __future__ import annotations

import pytest

from tests.trees import project_of, torch_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy\ntorch>=2.2\n", ">=2.2"),
        ("# torch>=2.6\ntorch>=2.2  # not torch>=2.6\n", ">=2.2"),
        ("torch>=2.2 \\\n    --hash=sha256:0123 \\\n    --hash=sha256:4567\n", ">=2.2"),
        ("torch>=2.2,\\\n<2.6\n", ">=2.2"),
        ("--index-url https://x.org/torch>=2.6\n-e .[torch]\ntorch>=2.3 ; sys_platform == 'linux'", ">=2.3"),
        ("-c constraints.txt\ntorch\n", ">=2.1"),
        ("torch==2.0.1\ntorchvision>=0.15\n", ">=2.1"),
        ("https://download.pytorch.org/whl/torch-2.6.0-cp311-linux_x86_64.whl\n", ">=2.1"),
        ("torch>=2.4; sys_platform == 'linux'\ntorch>=2.2; sys_platform == 'darwin'\n", ">=2.2"),
        ("", ">=2.1"),
    ],
)
def test_lines(text: str, expected: str) -> None:
    assert torch_of({"requirements.txt": text, "constraints.txt": "torch>=2.6\n"}) == expected


@pytest.mark.parametrize(
    "name",
    ["requirements-train.txt", "requirements_gpu.txt", "requirements.in", "requirements/base.txt", "requirements/a.in"],
)
def test_names(name: str) -> None:
    assert torch_of({name: "torch>=2.4\n"}) == ">=2.4"


@pytest.mark.parametrize(
    "name", ["my-requirements.txt", "requirements.md", "requirements/deep/base.txt", "constraints.txt"]
)
def test_other_names_are_not_lists(name: str) -> None:
    assert torch_of({name: "torch>=2.4\n"}) == ">=2.1"


@pytest.mark.parametrize(
    "line", ["-r deps/base.txt", "-rdeps/base.txt", "--requirement=deps/base.txt", "--requirement ./deps/base.txt"]
)
def test_included_lists_are_read_from_where_the_including_one_stands(line: str) -> None:
    files: dict[str, str | bytes] = {"deps/base.txt": "-r more.txt\n", "deps/more.txt": "torch>=2.4\n"}
    assert torch_of({"requirements.txt": f"{line}  # all of it\n", **files}) == ">=2.4"


def test_lists_may_include_each_other() -> None:
    assert torch_of({"requirements.txt": "-r a.txt\n", "a.txt": "-r requirements.txt\ntorch>=2.4\n"}) == ">=2.4"


def test_what_lies_outside_the_project_is_not_read() -> None:
    files: dict[str, str | bytes] = {"sub/requirements.txt": "-r ../other.txt\ntorch\n", "other.txt": "torch>=2.6\n"}
    project = project_of("sub/a.py", files)
    assert (project.root, str(project.torch)) == ("sub", ">=2.1")


def test_a_missing_list_is_told_and_the_rest_counts() -> None:
    project = project_of("a.py", {"requirements.txt": "-r gone.txt\ntorch>=2.4\n"})
    assert str(project.torch) == ">=2.4"
    assert project.warnings == ("gone.txt: cannot be read: No such file or directory; its requirements are ignored",)


def test_a_requirement_that_cannot_be_read_is_told() -> None:
    project = project_of("a.py", {"requirements/base.txt": "numpy\ntorch=>2.4\n"})
    assert str(project.torch) == ">=2.1"
    assert project.warnings == ("requirements/base.txt: the requirement 'torch=>2.4' cannot be parsed, and is ignored",)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marked_encodings(encoding: str) -> None:
    assert torch_of({"requirements.txt": "numpy\r\ntorch>=2.4\r\n".encode(encoding)}) == ">=2.4"


def test_bytes_that_are_no_text_are_no_trouble() -> None:
    assert torch_of({"requirements.txt": b"# caf\xe9\ntorch>=2.4\n"}) == ">=2.4"
