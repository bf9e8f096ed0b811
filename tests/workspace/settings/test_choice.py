"""`include` and `exclude`, as they act on the files that are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdp_migrate.workspace.filesystem import discover
from fsdp_migrate.workspace.settings import Layer
from fsdp_migrate.workspace.settings.configuration import Configuration
from tests.trees import plant

TREE = ["a.py", "bin/train", "gen/x.py", "gen/deep/y.py", "src/a.py", "src/a_pb2.py", "src/data.json", "src/gen/z.py"]


def found(*paths: str, config: str = "", options: Layer | None = None, force: bool = False) -> list[str]:
    plant(dict.fromkeys(TREE, ""))
    if config:
        Path("fsdp-migrate.toml").write_text(config)
    configuration = Configuration(options or Layer())
    discovery = discover(paths or (".",), configuration.choice, force_exclude=force)
    return [Path(file.shown).as_posix() for file in discovery.files]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["gen/"], ["a.py", "src/a.py", "src/a_pb2.py"]),
        (["/gen/"], ["a.py", "src/a.py", "src/a_pb2.py", "src/gen/z.py"]),
        (["gen/deep"], ["a.py", "gen/x.py", "src/a.py", "src/a_pb2.py", "src/gen/z.py"]),
        (["*_pb2.py", "gen"], ["a.py", "src/a.py"]),
        (["*.py", "!a.py"], ["a.py", "src/a.py"]),
        (["src/**"], ["a.py", "gen/deep/y.py", "gen/x.py"]),
        (["*"], []),
    ],
)
def test_what_exclude_names_is_left_out(patterns: list[str], expected: list[str]) -> None:
    assert found(config=f"exclude = {patterns}\n") == expected


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["src/"], ["src/a.py", "src/a_pb2.py", "src/gen/z.py"]),
        (["src/*"], ["src/a.py", "src/a_pb2.py", "src/gen/z.py"]),
        (["src/**"], ["src/a.py", "src/a_pb2.py", "src/gen/z.py"]),
        (["src/*.py"], ["src/a.py", "src/a_pb2.py"]),
        (["*.py", "bin/train"], ["a.py", "bin/train", *(name for name in sorted(TREE[2:]) if name.endswith(".py"))]),
        (["src/", "!*_pb2.py"], ["src/a.py", "src/gen/z.py"]),
        (["a.py", "data.json"], ["a.py", "src/a.py", "src/data.json"]),
        ([], []),
    ],
)
def test_only_what_include_names_is_taken(patterns: list[str], expected: list[str]) -> None:
    assert found(config=f"include = {patterns}\n") == expected


def test_patterns_start_from_the_folder_of_their_file_and_reach_no_further_than_it_counts() -> None:
    plant({"src/fsdp-migrate.toml": "exclude = ['/a.py']\n"})
    assert found(config="exclude = ['*.py']\n") == ["src/a_pb2.py", "src/gen/z.py"]


def test_exclude_of_the_command_line_starts_from_the_current_folder_and_replaces_that_of_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Layer(exclude=("/a.py",))
    assert found("src", config="exclude = ['src/']\n", options=options) == ["src/a.py", "src/a_pb2.py", "src/gen/z.py"]
    monkeypatch.chdir("src")
    assert [file.shown for file in discover((".",), Configuration(options).choice).files] == [
        "a_pb2.py",
        os.path.join("gen", "z.py"),
    ]
    assert [file.shown for file in discover(("../bin", "../gen"), Configuration(options).choice).files] == [
        os.path.join("..", "gen", "deep", "y.py"),
        os.path.join("..", "gen", "x.py"),
    ]


def test_what_is_named_is_taken_unless_exclusion_is_forced() -> None:
    config = "exclude = ['gen/', 'a_pb2.py']\n"
    named = ("gen", "src/a.py", "src/a_pb2.py", "src/gen/z.py")
    assert found(*named, config=config) == ["gen/deep/y.py", "gen/x.py", "src/a.py", "src/a_pb2.py", "src/gen/z.py"]
    assert found(*named, "gen/deep", config=config, force=True) == ["src/a.py"]


def test_a_walk_without_patterns_does_not_ask_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdp_migrate.workspace.gitignore.patterns", lambda lines: pytest.fail("patterns were read"))
    assert "a.py" in found(config="hints = true\n")
