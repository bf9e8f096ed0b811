from __future__ import annotations

import subprocess
import sys

import pytest

import fsdp_migrate
from fsdp_migrate.source import SourceError
from fsdp_migrate.torch_api import RangeError

TEXT = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

osd = FSDP.full_optim_state_dict(model, optim)
"""


def test_lint_source_takes_text_and_bytes() -> None:
    for source in (TEXT, TEXT.encode()):
        (finding,) = fsdp_migrate.lint_source(source, path="a.py")
        assert (finding.code, finding.path, finding.line) == ("FSDP101", "a.py", 3)


def test_lint_source_shows_hints_only_when_asked() -> None:
    text = TEXT + "with FSDP.state_dict_type(model, kind):\n    pass\n"
    assert [f.code for f in fsdp_migrate.lint_source(text)] == ["FSDP101"]
    assert [f.code for f in fsdp_migrate.lint_source(text, hints=True)] == ["FSDP101", "FSDP210"]


def test_rewrite_source_gives_back_what_it_was_given() -> None:
    text = fsdp_migrate.rewrite_source(TEXT)
    raw = fsdp_migrate.rewrite_source(TEXT.encode())
    assert "FSDP.optim_state_dict(model, optim)" in text.source
    assert raw.source == text.source.encode()
    assert [f.code for f in text.fixed] == ["FSDP101"]


def test_bad_ranges_and_texts_are_errors_of_one_line() -> None:
    with pytest.raises(RangeError, match="'soon'"):
        fsdp_migrate.lint_source(TEXT, torch="soon")
    with pytest.raises(SourceError, match="unknown encoding"):
        fsdp_migrate.lint_source("# coding: nonsense\n" + TEXT)


def test_importing_the_package_loads_its_version_alone() -> None:
    code = "import sys, fsdp_migrate; print([m for m in sys.modules if m.startswith('fsdp_migrate.')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "['fsdp_migrate._version']\n"


def test_the_public_names_are_those_that_dir_shows() -> None:
    assert dir(fsdp_migrate) == sorted(fsdp_migrate.__all__)
    assert {"lint_source", "rewrite_source"} <= set(dir(fsdp_migrate))
