from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdp_migrate.findings import Applicability, Severity
from fsdp_migrate.torch_api import TorchRange
from fsdp_migrate.workspace.filesystem import SourceFile
from fsdp_migrate.workspace.settings import Layer, Settings
from fsdp_migrate.workspace.settings.configuration import Configuration
from tests.trees import plant


def settings_of(path: str, config: str = "", options: Layer | None = None) -> Settings:
    plant({"fsdp-migrate.toml": config} if config else {})
    return Configuration(options or Layer()).of(SourceFile(path, path))


def test_without_any_configuration_the_defaults_hold() -> None:
    assert settings_of("a.py") == Settings(TorchRange.default())


def test_a_file_has_the_settings_of_its_configuration_file() -> None:
    config = """\
torch = ">=2.4"
select = ["FSDP1"]
ignore = ["FSDP104", "optim-input"]
unsafe-fixes = true
fail-on = "hint"
fixes = { FSDP1 = "unsafe", full-optim-state-dict = "manual" }
baseline = "ci/known.json"
"""
    assert settings_of("src/a.py", config) == Settings(
        TorchRange.parse(">=2.4"),
        select=("FSDP1",),
        ignore=("FSDP104", "FSDP106"),
        hints=True,
        unsafe_fixes=True,
        grades=(("FSDP1", Applicability.UNSAFE), ("FSDP101", Applicability.MANUAL)),
        fail_on=Severity.HINT,
        baseline=Path(os.path.abspath("ci/known.json")),
    )


def test_options_win_one_by_one() -> None:
    config = 'select = ["FSDP1"]\nignore = ["FSDP104"]\nhints = true\nunsafe-fixes = true\nfail-on = "breaks"\n'
    options = Layer(hints=False, unsafe_fixes=False, fail_on=Severity.CHANGES)
    assert settings_of("a.py", config, options) == Settings(
        TorchRange.default(), select=("FSDP1",), ignore=("FSDP104",), fail_on=Severity.CHANGES
    )


def test_select_begins_anew_and_ignore_adds() -> None:
    config = 'select = ["FSDP1"]\nignore = ["FSDP104"]\n'

    def chosen(**options: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        settings = settings_of("a.py", config, Layer(**options))
        return settings.select, settings.ignore

    assert chosen(select=("FSDP104",)) == (("FSDP104",), ())
    assert chosen(select=("FSDP1",), ignore=("FSDP101",)) == (("FSDP1",), ("FSDP101",))
    assert chosen(ignore=("FSDP101",)) == (("FSDP1",), ("FSDP104", "FSDP101"))


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("tests/", "tests/a.py", True),
        ("tests/", "src/tests/deep/a.py", True),
        ("/tests/", "src/tests/a.py", False),
        ("tests/", "tests.py", False),
        ("test_*.py", "src/test_a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("!src/", "src/a.py", False),
        ("!src/", "docs/a.py", True),
    ],
)
def test_rules_are_ignored_in_the_files_that_a_pattern_fits(pattern: str, path: str, fits: bool) -> None:
    settings = settings_of(path, f"select = ['FSDP101']\nper-file-ignores = {{ '{pattern}' = ['FSDP1'] }}\n")
    assert settings.selected("FSDP101") is not fits
    assert settings.selected("FSDP001")


def test_every_pattern_that_fits_adds_its_rules() -> None:
    config = "per-file-ignores = { 'tests/' = ['FSDP1'], '*.py' = ['FSDP2'], 'x/' = ['FSDP3'] }\n"
    assert settings_of("tests/a.py", config).ignored_here == ("FSDP1", "FSDP2")


def test_the_longest_start_of_a_code_decides_on_a_grade() -> None:
    config = "fixes = { FSDP10 = 'manual', FSDP = 'unsafe', FSDP101 = 'safe' }\n"
    settings = settings_of("a.py", config)
    assert [settings.grade(code) for code in ("FSDP101", "FSDP102", "FSDP303")] == [
        Applicability.SAFE,
        Applicability.MANUAL,
        Applicability.UNSAFE,
    ]
    assert Settings(TorchRange.default()).grade("FSDP101") is None
